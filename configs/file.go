package configs

import (
	"fmt"
	"os"
)

// maxFile is the size in bytes above which a file is surely not a configuration.
const maxFile = 1 << 20

// readFile reads a regular file: a pipe would be waited for.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() && !info.IsDir(): // os.ReadFile rejects a directory
		return nil, fmt.Errorf("%s is not a regular file", path)
	case info.Size() > maxFile:
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxFile)
	}
	return os.ReadFile(path)
}
