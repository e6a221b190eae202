//go:build !linux && !darwin && !freebsd

package monitor

// DiskOf measures the file system under a path, which this system does not let us.
func DiskOf(path string) Disk { return Disk{Path: path, Error: "not known on this system"} }
