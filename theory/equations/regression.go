package equations

// regressions is the rows on kernel regression and linear attention.
func regressions() []Row { return nil }
