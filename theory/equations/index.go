package equations

// indexNotation is the rows on index notation.
func indexNotation() []Row { return nil }
