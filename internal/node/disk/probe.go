package disk

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Kind is what a partition holds, by its superblock.
type Kind string

// The kinds that are told apart. Unknown is everything else, also nothing.
const (
	Ext4    Kind = "ext4" // ext2 and ext3 as well; one driver serves all
	XFS     Kind = "xfs"
	VFAT    Kind = "vfat"
	Btrfs   Kind = "btrfs"
	LVM     Kind = "LVM2_member"
	LUKS    Kind = "crypto_LUKS"
	Swap    Kind = "swap"
	Unknown Kind = ""
)

// Superblock is what a file system says of itself.
type Superblock struct {
	Kind  Kind
	UUID  string // as fstab writes it
	Label string
}

// probeSize is how much of a partition's start is looked at; btrfs has its
// superblock at 64 KiB.
const probeSize = 68 << 10

// Probe reads the superblock at the start of a partition. The formats are those
// of the kernel's own headers; nothing but these bytes is trusted.
func Probe(r io.ReaderAt) (Superblock, error) {
	b := make([]byte, probeSize)
	n, err := r.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return Superblock{}, err
	}
	return parseSuperblock(b[:n]), nil
}

func parseSuperblock(b []byte) Superblock {
	at := func(off, n int) []byte {
		if off+n > len(b) {
			return make([]byte, n)
		}
		return b[off : off+n]
	}
	switch {
	case string(at(0, 6)) == "LUKS\xba\xbe":
		return Superblock{Kind: LUKS}
	case isLVM(at):
		return Superblock{Kind: LVM}
	case string(at(0, 4)) == "XFSB":
		return Superblock{Kind: XFS, UUID: dashed(at(32, 16)), Label: text(at(108, 12))}
	case binary.LittleEndian.Uint16(at(1024+56, 2)) == 0xef53:
		return Superblock{Kind: Ext4, UUID: dashed(at(1024+104, 16)), Label: text(at(1024+120, 16))}
	case string(at(0x10040, 8)) == "_BHRfS_M":
		return Superblock{Kind: Btrfs, UUID: dashed(at(0x10020, 16)), Label: text(at(0x1012b, 256))}
	case string(at(4086, 10)) == "SWAPSPACE2":
		return Superblock{Kind: Swap, UUID: dashed(at(1036, 16))}
	case at(510, 2)[0] == 0x55 && at(510, 2)[1] == 0xaa:
		return fat(at)
	}
	return Superblock{}
}

// isLVM looks for a physical volume's label in the first four sectors.
func isLVM(at func(int, int) []byte) bool {
	for sector := range 4 {
		if string(at(sector*512, 8)) == "LABELONE" && string(at(sector*512+24, 8)) == "LVM2 001" {
			return true
		}
	}
	return false
}

func fat(at func(int, int) []byte) Superblock {
	var serial, label int
	switch {
	case string(at(82, 5)) == "FAT32":
		serial, label = 67, 71
	case string(at(54, 3)) == "FAT":
		serial, label = 39, 43
	default:
		return Superblock{}
	}
	id := binary.LittleEndian.Uint32(at(serial, 4))
	return Superblock{Kind: VFAT, UUID: fmt.Sprintf("%04X-%04X", id>>16, id&0xffff), Label: text(at(label, 11))}
}

func dashed(b []byte) string {
	h := hex.EncodeToString(b)
	return strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:]}, "-")
}

func text(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return strings.TrimSpace(string(b))
}
