package packages

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The format is that of Berkeley DB 5.3: its src/dbinc/db_page.h, for a hash table.
const (
	bdbMagic      = 0x061561 // of a hash table
	bdbMeta       = 512      // bytes, of the first page
	bdbPageHeader = 26

	bdbUnsortedPage = 2 // of entries, before Berkeley DB 4.6
	bdbOverflowPage = 7
	bdbHashPage     = 13 // of entries

	bdbInline   = 1 // an entry's data follows
	bdbOverflow = 3 // an entry's data is in a chain of other pages
)

// bdbHeaders reads RPM's database as Berkeley DB, of a little-endian machine. The pages are read in their order in
// the file, so that no bucket is needed to find them; what is deleted is on none of these kinds.
func bdbHeaders(r io.ReaderAt, size int64, each func(header []byte)) error {
	var meta [bdbMeta]byte
	if _, err := r.ReadAt(meta[:], 0); err != nil || binary.LittleEndian.Uint32(meta[12:]) != bdbMagic {
		return errors.New("it is no hash table of Berkeley DB that a little-endian machine wrote")
	}
	if meta[24] != 0 || meta[26]&1 != 0 {
		return errors.New("it is encrypted, or its pages have checksums")
	}
	length, last := binary.LittleEndian.Uint32(meta[20:]), binary.LittleEndian.Uint32(meta[32:])
	if !isPageSize(int64(length)) || int64(length) > size {
		return fmt.Errorf("it has pages of %d bytes", length)
	}
	d := bdb{newPages(r, size, int(length), 0, int64(last)+1)}
	in := bufio.NewReaderSize(io.NewSectionReader(r, int64(length), size), 1<<20)
	for n := uint32(1); n <= min(last, d.last) && d.cells <= maxCells; n++ {
		header, err := in.Peek(bdbPageHeader)
		if err != nil {
			d.fail(fmt.Errorf("read page %d: %w", n, err))
			break
		}
		if kind := header[25]; kind == bdbHashPage || kind == bdbUnsortedPage {
			d.hash(n, each)
		}
		_, _ = in.Discard(int(length)) // Peek returns the error
	}
	if want := binary.LittleEndian.Uint32(meta[88:]); d.cells != int(want) {
		d.fail(fmt.Errorf("it has %d entries, and should have %d", d.cells, want))
	}
	return d.err
}

type bdb struct{ pages }

// hash reads the entries of a page: pairs of a key and its value. The page begins with the offset of each, and they
// lie from its end on, so that one ends where the one before begins.
func (d *bdb) hash(n uint32, each func(header []byte)) {
	page := d.page(n)
	if page == nil {
		return
	}
	count, end := int(binary.LittleEndian.Uint16(page[20:])), len(page)
	first := bdbPageHeader + 2*count
	if first > len(page) || count%2 != 0 {
		d.fail(fmt.Errorf("page %d has %d entries", n, count))
		return
	}
	var key []byte
	for i := range count {
		at := int(binary.LittleEndian.Uint16(page[bdbPageHeader+2*i:]))
		if at < first || at >= end {
			d.fail(fmt.Errorf("an entry of page %d lies outside of it", n))
			return
		}
		entry := page[at:end]
		end = at
		if i%2 == 0 {
			key = entry
			continue
		}
		if !d.more() {
			return
		}
		switch {
		case string(key) == "\x01\x00\x00\x00\x00": // the number of the next package
		case entry[0] == bdbInline:
			each(entry[1:])
		case entry[0] == bdbOverflow && len(entry) >= 12:
			if data := d.overflow(binary.LittleEndian.Uint32(entry[4:]), int64(binary.LittleEndian.Uint32(entry[8:]))); data != nil {
				each(data)
			}
		default:
			d.fail(fmt.Errorf("page %d has an entry of kind %d", n, entry[0]))
		}
	}
}

// overflow reads a chain of pages; nil where it is none.
func (d *bdb) overflow(n uint32, length int64) (data []byte) {
	if length > maxRow || length > int64(d.last)*int64(d.size) {
		d.fail(fmt.Errorf("an entry of %d bytes", length))
		return nil
	}
	for int64(len(data)) < length {
		if n == 0 {
			d.fail(errors.New("an entry is cut"))
			return nil
		}
		page := d.page(n)
		if page == nil {
			return nil
		}
		used := int(binary.LittleEndian.Uint16(page[22:]))
		if page[25] != bdbOverflowPage || used > len(page)-bdbPageHeader {
			d.fail(fmt.Errorf("page %d is none of an entry's data", n))
			return nil
		}
		data = append(data, page[bdbPageHeader:bdbPageHeader+used]...)
		n = binary.LittleEndian.Uint32(page[16:])
	}
	return data[:length]
}
