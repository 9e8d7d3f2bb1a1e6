// Package e2e tests the console as its readers have it: a whole center, with tasks in every state, in a real browser. It is
// a module of its own, so that programs which embed the center do not get what drives the browser.
//
//	scripts/test-console.sh                                       # the tests, also a part of `make test`
//	scripts/test-console.sh -run TestScreenshots -update          # takes docs/images/console-*.png
//	go test -C console/e2e -run '^$' -bench Figures -benchtime 1x # what pages and viewers cost with a million tasks
//
// The tests know pages by their paths, and what is on them by the words that a reader sees or hears.
package e2e
