// Sorts by what a cell shows; empty cells stay at the end either way, and equal ones keep their order.
for (const table of document.querySelectorAll("#trials table")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const number = head.classList.contains("number"), down = head.getAttribute("aria-sort") === "ascending";
      const read = row => {
        const text = row.cells[column].textContent.trim();
        return number ? parseFloat(text.replace(/[,\s%]/g, "").replace("−", "-")) : text;
      };
      const missing = value => value === "" || value === "–" || Number.isNaN(value);
      const compare = (a, b) => (number ? a - b : a.localeCompare(b, "en", {numeric: true})) * (down ? -1 : 1);
      const lines = [...body.rows].map(row => [read(row), row]);
      lines.sort(([a], [b]) => missing(a) - missing(b) || (missing(a) ? 0 : compare(a, b)));
      heads.forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      body.append(...lines.map(([, row]) => row));
    });
  });
}
