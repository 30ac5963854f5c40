package equations

// masksAndPositions is the rows on masks and positions.
func masksAndPositions() []Row { return nil }
