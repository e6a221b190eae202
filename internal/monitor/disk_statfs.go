//go:build linux || darwin || freebsd

package monitor

import "syscall"

// DiskOf measures the file system under a path.
func DiskOf(path string) Disk {
	d := Disk{Path: path}
	var s syscall.Statfs_t
	if err := syscall.Statfs(path, &s); err != nil {
		d.Error = err.Error()
		return d
	}
	block := int64(s.Bsize)
	d.Free, d.Total = int64(s.Bavail)*block, int64(s.Blocks)*block
	d.FreeInodes, d.TotalInodes = int64(s.Ffree), int64(s.Files)
	d.ReadOnly = syscall.Access(path, 2) == syscall.EROFS // 2: for writing
	return d
}
