package packages

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
)

// The format is that of https://www.sqlite.org/fileformat2.html.
const (
	sqliteMagic  = "SQLite format 3\x00"
	sqliteHeader = 100
	interiorPage = 0x05 // of a table
	leafPage     = 0x0d // of a table
	maxTreeDepth = 20
	maxColumns   = 32
)

// sqliteHeaders reads RPM's database as SQLite: table Packages has a header in each row.
func sqliteHeaders(r io.ReaderAt, size int64, each func(header []byte)) error {
	d, err := openSQLite(r, size)
	if err != nil {
		return err
	}
	root, err := d.table("Packages")
	if err != nil {
		return err
	}
	return d.rows(root, func(row []value) {
		for _, v := range row {
			if v.isBlob() {
				each(v.data)
			}
		}
	})
}

// A sqlite reads tables of a database file.
type sqlite struct {
	pages
	use int // bytes of a page without what is reserved at its end
}

func openSQLite(r io.ReaderAt, bytes int64) (*sqlite, error) {
	var h [sqliteHeader]byte
	if _, err := r.ReadAt(h[:], 0); err != nil || string(h[:16]) != sqliteMagic {
		return nil, errors.New("it is no SQLite database")
	}
	size, reserved := int(binary.BigEndian.Uint16(h[16:])), int(h[20])
	if size == 1 {
		size = 64 << 10
	}
	if !isPageSize(int64(size)) || size-reserved < 480 {
		return nil, fmt.Errorf("it has pages of %d bytes, of which %d are reserved", size, reserved)
	}
	if encoding := binary.BigEndian.Uint32(h[56:]); encoding != 1 {
		return nil, fmt.Errorf("its text is not UTF-8 (encoding %d)", encoding)
	}
	return &sqlite{newPages(r, bytes, size, 1, int64(binary.BigEndian.Uint32(h[28:]))), size - reserved}, nil
}

// table returns the root page of a table, by the schema, which is the table of page 1:
// type, name, tbl_name, rootpage, sql.
func (d *sqlite) table(name string) (root uint32, err error) {
	d.walk(1, 0, func(row []value) {
		if len(row) >= 4 && string(row[0].data) == "table" && strings.EqualFold(string(row[1].data), name) {
			root = row[3].number()
		}
	})
	if root == 0 {
		d.fail(fmt.Errorf("it has no table %s", name))
		return 0, d.err
	}
	return root, nil
}

// rows calls each with the rows of a table. An error is the first of the database; rows that could
// be read were given to each by then.
func (d *sqlite) rows(root uint32, each func([]value)) error {
	d.walk(root, 0, each)
	return d.err
}

func (d *sqlite) walk(n uint32, depth int, each func([]value)) {
	page := d.page(n)
	if page == nil {
		return
	}
	page = page[:d.use]
	head := page
	if n == 1 {
		head = page[sqliteHeader:]
	}
	if depth > maxTreeDepth {
		d.fail(fmt.Errorf("its tree is deeper than %d pages", maxTreeDepth))
		return
	}
	kind, cells, first := head[0], int(binary.BigEndian.Uint16(head[3:])), 8
	if kind == interiorPage {
		first = 12
	} else if kind != leafPage {
		d.fail(fmt.Errorf("page %d is none of a table", n))
		return
	}
	if first+2*cells > len(head) {
		d.fail(fmt.Errorf("page %d has %d cells, which do not fit", n, cells))
		return
	}
	for i := range cells {
		if !d.more() {
			return
		}
		at := int(binary.BigEndian.Uint16(head[first+2*i:]))
		switch {
		case at+4 > len(page):
			d.fail(fmt.Errorf("a cell of page %d lies outside of it", n))
		case kind == interiorPage:
			d.walk(binary.BigEndian.Uint32(page[at:]), depth+1, each)
		default:
			if row, err := d.row(page[at:]); err != nil {
				d.fail(fmt.Errorf("page %d: %w", n, err))
			} else {
				each(row)
			}
		}
	}
	if kind == interiorPage {
		d.walk(binary.BigEndian.Uint32(head[8:]), depth+1, each)
	}
}

// row reads a leaf's cell: the length of the record, the row's id, the record. What does not fit
// into the page is in a chain of others.
func (d *sqlite) row(cell []byte) ([]value, error) {
	length, n := varint(cell)
	_, m := varint(cell[n:])
	if n == 0 || m == 0 || length > maxRow || length > uint64(d.last)*uint64(d.size) {
		return nil, fmt.Errorf("a row of %d bytes", length)
	}
	cell = cell[n+m:]
	total, local := int(length), int(length)
	if most := d.use - 35; total > most {
		least := (d.use-12)*32/255 - 23
		if local = least + (total-least)%(d.use-4); local > most {
			local = least
		}
	}
	if local > len(cell) || local < total && local+4 > len(cell) {
		return nil, errors.New("a row is cut")
	}
	if local == total {
		return record(cell[:local])
	}
	data, next := cell[:local:local], binary.BigEndian.Uint32(cell[local:])
	for len(data) < total {
		page := d.page(next)
		if page == nil {
			return nil, errors.New("a row is cut")
		}
		next = binary.BigEndian.Uint32(page)
		data = append(data, page[4:min(d.use, 4+total-len(data))]...)
	}
	return record(data)
}

// A value is one column of a row.
type value struct {
	serial uint64 // its type
	data   []byte
}

func (v value) isBlob() bool { return v.serial >= 12 && v.serial%2 == 0 }

// number returns a number that a page may have; 0 for any other value.
func (v value) number() (n uint32) {
	if v.serial == 9 {
		return 1
	}
	if v.serial < 1 || v.serial > 4 {
		return 0
	}
	for _, c := range v.data {
		n = n<<8 | uint32(c)
	}
	return n
}

// record reads a record: the length of its header, the types of its columns, their values.
func record(data []byte) (row []value, err error) {
	length, n := varint(data)
	if n == 0 || length > uint64(len(data)) || length < uint64(n) {
		return nil, errors.New("a record's header is cut")
	}
	header, body := data[n:length], data[length:]
	for len(header) > 0 && len(row) < maxColumns {
		serial, n := varint(header)
		size := (serial - 12) / 2
		if serial < 12 {
			size = [12]uint64{0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0}[serial]
		}
		if n == 0 || size > uint64(len(body)) {
			return nil, errors.New("a record is cut")
		}
		row = append(row, value{serial, body[:size]})
		header, body = header[n:], body[size:]
	}
	return row, nil
}

// varint reads a number of 1 to 9 bytes, and returns how many; 0 where it is cut.
func varint(data []byte) (v uint64, n int) {
	for i, c := range data[:min(len(data), 9)] {
		if i == 8 {
			return v<<8 | uint64(c), 9
		}
		if v = v<<7 | uint64(c&0x7f); c < 0x80 {
			return v, i + 1
		}
	}
	return 0, 0
}
