"""What becomes of each example during training, kept inside the compiled interval (row F6).

    accounts = Accounts.begin(len(train), len(valid))
    accounts = accounts.after_updates(rows, present, losses, margins, first=0, per_epoch=7)    as the updates saw them
    accounts = accounts.after_validation(losses, better)                                       as they were judged
    training, validation = accounts.on_host()

Nothing is computed twice: an update has each example's loss and margin before it moves the parameters, and a validation
has each loss. They are entered once an interval, epoch by epoch, since the order of visits decides what was forgotten.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..runtime.control_flow import either

Values = Array | np.ndarray


class Account(NamedTuple):
    """What is known of one example, or of many: the fields are the columns of a table.

    A visit is right if its margin is positive. An example is forgotten at each visit that is wrong after one that was
    right (Toneva et al. 2019); it is learned at its first visit that is right. The mean margin is that of Pleiss et al.
    (2020). The confidence of a visit is tanh(margin / 2) = (p - q) / (p + q), for the probability p of the label and
    that of its strongest rival q: unlike a margin it cannot outweigh many others.
    """

    visits: Values
    last_loss: Values
    mean_loss: Values
    squares: Values  # the sum of the squared deviations of its losses from their mean
    first_loss: Values
    right: Values  # whether its last visit was right
    forgotten: Values
    learned: Values  # the number of the visit at which it was first right; 0 before
    margin: Values  # the mean one
    confidence: Values  # the mean one

    def after(self, loss: Array, margin: Array) -> "Account":
        """The account after one more visit, with Welford's recursion for mean and squares."""
        visits = self.visits + 1.0
        away = loss - self.mean_loss
        mean = self.mean_loss + away / visits
        right = jnp.where(margin > 0.0, 1.0, 0.0)
        return Account(
            visits=visits,
            last_loss=loss,
            mean_loss=mean,
            squares=self.squares + away * (loss - mean),
            first_loss=jnp.where(visits == 1.0, loss, self.first_loss),
            right=right,
            forgotten=self.forgotten + self.right * (1.0 - right),
            learned=jnp.where((self.learned == 0.0) & (right == 1.0), visits, self.learned),
            margin=self.margin + (margin - self.margin) / visits,
            confidence=self.confidence + (jnp.tanh(0.5 * margin) - self.confidence) / visits,
        )


_WIDTH = len(Account._fields)
_MEAN_LOSS, _CONFIDENCE = (Account._fields.index(name) for name in ("mean_loss", "confidence"))


def _account(table: Float[Array, "n fields"]) -> Account:
    return Account(*(table[:, number] for number in range(_WIDTH)))


def _table(account: Account) -> Float[Array, "n fields"]:
    return jnp.stack(account, axis=1)


class Accounts(NamedTuple):
    """The accounts of the training examples and of the validation examples, a row for each.

    Rows, because an update visits few examples of many: all that is known of one lies together. `confidence` of the
    training examples and `held_out_loss`, the mean loss of the validation examples, are those up to the best network:
    later a network may memorise what it first contradicted.
    """

    training: Float[Array, "T fields"]
    validation: Float[Array, "V fields"]
    confidence: Float[Array, " T"]
    held_out_loss: Float[Array, " V"]

    @staticmethod
    def begin(training: int, validation: int) -> "Accounts":
        tables = jnp.zeros((training, _WIDTH)), jnp.zeros((validation, _WIDTH))
        return Accounts(*tables, jnp.zeros(training), jnp.zeros(validation))

    def after_updates(
        self,
        rows: Int[Array, "N B"],
        present: Float[Array, "N B"],
        losses: Float[Array, "N B"],
        margins: Float[Array, "N B"],
        *,
        first: Int[Array, ""],
        per_epoch: int,
    ) -> "Accounts":
        """With what these updates saw, the first of which has this number in the run; a slot not present is no visit.

        Epoch by epoch: an example comes once in each. Of an order that draws with replacement, the last visit of an
        example in an epoch counts, or in the part of it that these updates are.
        """
        updates, slots = rows.shape
        count = self.training.shape[0]
        reach = min(updates, per_epoch)  # of the updates of one epoch, as many lie in this interval at most
        offset = first % per_epoch
        place = jnp.arange(reach * slots, dtype=jnp.int32)

        def enter(epoch: Array, table: Array) -> Array:
            start = jnp.clip(epoch * per_epoch - offset, 0, updates - reach)
            row, here, loss, margin = (
                jax.lax.dynamic_slice_in_dim(one, start, reach).ravel() for one in (rows, present, losses, margins)
            )
            now = (offset + start + jnp.arange(reach)) // per_epoch == epoch
            visited = (here > 0) & jnp.repeat(now, slots)
            last = jnp.full(count, -1, jnp.int32).at[jnp.where(visited, row, count)].max(place, mode="drop")
            visited = visited & (last[row] == place)
            new = _table(_account(table[row]).after(loss, margin))
            return table.at[jnp.where(visited, row, count)].set(new, mode="drop")

        epochs = (offset + updates - 1) // per_epoch + 1
        return self._replace(training=jax.lax.fori_loop(0, epochs, enter, self.training))

    def after_validation(self, losses: Float[Array, " V"], better: Bool[Array, ""]) -> "Accounts":
        """With the losses of one validation, which tells no margins; `better` if it found the best network so far."""
        none = jnp.full(losses.shape, jnp.nan)
        validation = _table(_account(self.validation).after(losses, none))

        def now() -> tuple[Array, Array]:
            return self.training[:, _CONFIDENCE], validation[:, _MEAN_LOSS]

        kept = either(better, now, (self.confidence, self.held_out_loss))
        return Accounts(self.training, validation, *kept)

    def on_host(self) -> tuple[Account, Account]:
        """The accounts of training and of validation examples as arrays of NumPy."""
        training, validation = (np.asarray(table).T for table in (self.training, self.validation))
        return Account(*training), Account(*validation)
