package equations

// attention is the rows on attention itself.
func attention() []Row { return nil }
