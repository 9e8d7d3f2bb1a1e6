// Package e2e tests the console as its readers have it: a whole center, with tasks in every state, in a real browser. It is
// a separate module, so that programs which embed the center do not depend on the driver of the browser.
//
//	scripts/test-console.sh                                       # the tests, also a part of `make test`
//	scripts/test-console.sh -run TestScreenshots -update          # takes docs/images/console-*.png
//	go test -C server/console/e2e -run '^$' -bench Figures -benchtime 1x # what pages and viewers cost with a million tasks
//
// The tests find pages by their paths, and the parts of a page by the words that are shown or read aloud.
package e2e
