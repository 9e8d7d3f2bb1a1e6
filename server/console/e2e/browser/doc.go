// Package browser is a test's hand on a tab of a real browser: it goes to a page, finds a field or a button by the words
// that a reader sees, types and presses as a reader would, and reads what the page says then.
//
// A tab has its own cookies, and the View of one reader: dark or light, a desktop or a phone, with script or without.
// A fault of the page fails the test: an error in its script or on its console, a resource that is missing,
// a breach of its content security policy, a dialog. A test that provokes such a fault says so by [Tab.Expect].
//
// Waiting is built in. Each method tries again until the page is as asked for, and fails the test when it is not by then.
package browser
