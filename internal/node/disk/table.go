package disk

import (
	"encoding/binary"
	"errors"
	"io"
)

// extent is where a partition lies on its disk, in bytes.
type extent struct {
	number        int
	offset, bytes int64
}

// maxPartitions bounds the entries of a partition table that are read.
const maxPartitions = 128

// readTable reads a disk's GPT or MBR partition table; none is no error. It
// serves kernels that do not read the table themselves.
func readTable(r io.ReaderAt, size int64) ([]extent, error) {
	for _, sector := range []int64{512, 4096} {
		head := make([]byte, 92)
		if _, err := r.ReadAt(head, sector); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if string(head[:8]) == "EFI PART" {
			return readGPT(r, head, sector, size)
		}
	}
	mbr := make([]byte, 512)
	if _, err := r.ReadAt(mbr, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return readMBR(mbr, size), nil
}

// readGPT follows the header's pointer to the entries (UEFI specification,
// 5.3: type GUID at 0, first and last block at 32 and 40).
func readGPT(r io.ReaderAt, head []byte, sector, size int64) ([]extent, error) {
	first := binary.LittleEndian.Uint64(head[72:])
	count, each := binary.LittleEndian.Uint32(head[80:]), binary.LittleEndian.Uint32(head[84:])
	if first > uint64(size/sector) || each < 128 || each > 4096 {
		return nil, nil // no table that could be right
	}
	table := make([]byte, int(min(count, maxPartitions))*int(each))
	if _, err := r.ReadAt(table, int64(first)*sector); err != nil {
		return nil, err
	}
	var found []extent
	for i := 0; i*int(each) < len(table); i++ {
		e := table[i*int(each):]
		if [16]byte(e[:16]) == [16]byte{} {
			continue
		}
		found = appendExtent(found, i+1, binary.LittleEndian.Uint64(e[32:]), binary.LittleEndian.Uint64(e[40:])+1, sector, size)
	}
	return found, nil
}

// readMBR reads the four primary partitions.
func readMBR(mbr []byte, size int64) []extent {
	if mbr[510] != 0x55 || mbr[511] != 0xaa {
		return nil
	}
	var found []extent
	for i := range 4 {
		e := mbr[446+16*i:]
		// A boot sector of a file system without partitions ends alike, but has
		// no such status bytes.
		if e[0]&0x7f != 0 {
			return nil
		}
		if e[4] == 0 {
			continue
		}
		first := uint64(binary.LittleEndian.Uint32(e[8:]))
		found = appendExtent(found, i+1, first, first+uint64(binary.LittleEndian.Uint32(e[12:])), 512, size)
	}
	return found
}

// appendExtent adds blocks [first, end) where they lie on the disk.
func appendExtent(found []extent, number int, first, end uint64, sector, size int64) []extent {
	if first == 0 || end <= first || end > uint64(size/sector) {
		return found
	}
	return append(found, extent{number, int64(first) * sector, int64(end-first) * sector})
}
