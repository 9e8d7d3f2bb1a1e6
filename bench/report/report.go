// Package report tells results.
package report

import "github.com/timeoutcenter/toc/bench/result"

// Write writes.
func Write(result.Results, string) error { return nil }
