package packages

import (
	"fmt"
	"io"
)

// What is read of a database of RPM, of any kind.
const (
	maxCells = 200_000  // entries; a node has some hundred packages
	maxRow   = 32 << 20 // bytes of one; a header lists a package's files
)

// A reading is how far a database was read. What is damaged does not end it: the first error is kept.
type reading struct {
	cells int
	err   error
}

func (d *reading) fail(err error) {
	if d.err == nil {
		d.err = err
	}
}

// more counts an entry; false ends the reading.
func (d *reading) more() bool {
	if d.cells++; d.cells > maxCells {
		d.fail(fmt.Errorf("it has more than %d entries", maxCells))
	}
	return d.cells <= maxCells
}

// Pages are those of a database file. Each is read once at most, so that pages that lead back to
// themselves end the walk.
type pages struct {
	reading
	r     io.ReaderAt
	size  int    // of a page, in bytes
	first uint32 // number of the first
	last  uint32
	seen  []bool // by number of page
}

// newPages returns the pages that the file has, of which count should be there.
func newPages(r io.ReaderAt, bytes int64, size int, first uint32, count int64) pages {
	have := bytes / int64(size) // at most maxDatabase
	d := pages{r: r, size: size, first: first, last: uint32(have) + first - 1, seen: make([]bool, have+int64(first))}
	if count > have {
		d.fail(fmt.Errorf("it is cut: %d of %d pages are there", have, count))
	}
	return d
}

func isPageSize(n int64) bool { return n >= 512 && n <= 64<<10 && n&(n-1) == 0 }

// page reads a page; nil for one outside of the file, or that was read before.
func (d *pages) page(n uint32) []byte {
	switch {
	case n < d.first || int64(n) >= int64(len(d.seen)):
		d.fail(fmt.Errorf("page %d of %d is not there", n, d.last))
		return nil
	case d.seen[n]:
		d.fail(fmt.Errorf("page %d is used twice", n))
		return nil
	}
	d.seen[n] = true
	data := make([]byte, d.size)
	if _, err := d.r.ReadAt(data, int64(n-d.first)*int64(d.size)); err != nil {
		d.fail(fmt.Errorf("read page %d: %w", n, err))
		return nil
	}
	return data
}
