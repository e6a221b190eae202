package eventlog

import (
	"encoding/binary"
	"hash/crc32"
)

// sealed appends the checksum of a state file.
func sealed(b []byte) []byte {
	out := append([]byte(nil), b...)
	return binary.LittleEndian.AppendUint32(out, crc32.Checksum(b, castagnoli))
}

// mendSums makes the checksums of a segment right, as far as its sizes allow.
func mendSums(b []byte) {
	if len(b) < footerSize {
		return
	}
	f := b[len(b)-footerSize:]
	n := uint64(binary.LittleEndian.Uint32(f[12:]))
	sizes := []uint64{n * docSize, ((n+blockDocs-1)/blockDocs + 1) * sumSize, uint64(binary.LittleEndian.Uint32(f[16:])) * expirySize,
		uint64(binary.LittleEndian.Uint32(f[20:])) * 4, n * 4, binary.LittleEndian.Uint64(f[24:]) * 4, binary.LittleEndian.Uint64(f[32:]) * termSize}
	rest := b[:len(b)-footerSize]
	for i, size := range sizes {
		if size > uint64(len(rest)) {
			break
		}
		binary.LittleEndian.PutUint32(f[40+4*i:], crc32.Checksum(rest[:size], castagnoli))
		rest = rest[size:]
	}
	binary.LittleEndian.PutUint32(f[92:], crc32.Checksum(f[:92], castagnoli))
}
