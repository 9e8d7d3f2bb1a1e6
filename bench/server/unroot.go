package server

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// unprivileged is the user for a server that does not run as root: the user of its OS package, or nobody.
func unprivileged() (uid, gid int, err error) {
	for _, name := range []string{"postgres", "nobody"} {
		u, lookErr := user.Lookup(name)
		if lookErr != nil {
			err = lookErr
			continue
		}
		if uid, err = strconv.Atoi(u.Uid); err != nil {
			return 0, 0, err
		}
		gid, err = strconv.Atoi(u.Gid)
		return uid, gid, err
	}
	return 0, 0, fmt.Errorf("no user to run PostgreSQL as: %w", err)
}

func (k Kind) drops() bool { return k.unroot && os.Geteuid() == 0 }

// give lets the server's user have its directory.
func (k Kind) give(dir string) error {
	if !k.drops() {
		return nil
	}
	uid, gid, err := unprivileged()
	if err != nil {
		return err
	}
	return os.Chown(dir, uid, gid)
}

// as makes a command run as the server's user.
func (k Kind) as(cmd *exec.Cmd) error {
	if !k.drops() {
		return nil
	}
	uid, gid, err := unprivileged()
	if err != nil {
		return err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	return nil
}
