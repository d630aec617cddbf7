"""Settings of the openxla back end."""

skip_input_data_check = False
"""Read by nobody: whether an input is still to be computed is known at no cost. Scripts set it."""

most_programs = 64
"""How many programs one graph keeps, each for other sizes or numbers; the oldest go first."""
