"""The steps of a fit as compiled code; `model.bbb.steps` calls it."""
