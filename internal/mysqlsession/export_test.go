package mysqlsession

import "time"

// Variables lists all variables that toc sets, the first first.
func Variables() []Variable {
	var list []Variable
	for _, s := range settings(Limits{Statement: 10 * time.Second}) {
		list = append(list, s.Variable)
	}
	return list
}
