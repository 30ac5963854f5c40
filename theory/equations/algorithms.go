package equations

// algorithms is the rows on algorithms, their cost, and the library's remaining modules.
func algorithms() []Row { return nil }
