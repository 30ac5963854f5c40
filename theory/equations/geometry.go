package equations

// geometryOfScores is the rows on metrics that change from place to place, and information.
func geometryOfScores() []Row { return nil }
