package redistimer

// SetStoreID names the task store that slots are of.
func SetStoreID(s *Slots, id string) { s.storeID = func() string { return id } }
