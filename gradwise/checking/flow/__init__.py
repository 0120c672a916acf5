"""Do signals get through: the flow through the layers, the graph of the program, the coordinate check."""
