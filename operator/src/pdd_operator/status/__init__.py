"""Pure: observations and the previous status become the next status. Time comes in as an argument."""
