package disk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// volume is a logical volume that lies in one piece on one physical volume, so
// that it can be reached without LVM. That is what makes twins safe: activating
// a volume group whose UUIDs this node has too would take one for the other.
type volume struct {
	group, name   string
	offset, bytes int64 // on the physical volume
}

// names are the paths by which an fstab can call the volume.
func (v volume) names() []string {
	escape := func(s string) string { return strings.ReplaceAll(s, "-", "--") }
	return []string{"/dev/" + v.group + "/" + v.name, "/dev/mapper/" + escape(v.group) + "-" + escape(v.name)}
}

// maxMetadata bounds LVM's metadata text; its area is 1 MiB by default.
const maxMetadata = 4 << 20

var errLVM = errors.New("its LVM metadata is not understood")

// readVolumes reads the logical volumes of a physical volume from its own
// metadata (lvm2's lib/format_text/layout.h and lib/label/label.h). scattered
// names those that are not in one piece here.
func readVolumes(r io.ReaderAt, size int64) (found []volume, scattered []string, err error) {
	head := make([]byte, 4*512)
	if _, err := r.ReadAt(head, 0); err != nil {
		return nil, nil, err
	}
	var label []byte
	for sector := 0; sector < 4 && label == nil; sector++ {
		if s := head[sector*512:]; string(s[:8]) == "LABELONE" && string(s[24:32]) == "LVM2 001" {
			label = s[:512]
		}
	}
	if label == nil {
		return nil, nil, errLVM
	}
	at := binary.LittleEndian.Uint32(label[20:])
	if at > 512-40 {
		return nil, nil, errLVM
	}
	pv := label[at:]
	id := string(pv[:32])
	area, ok := metadataArea(pv[40:])
	if !ok {
		return nil, nil, errLVM
	}
	text, err := readMetadata(r, size, area)
	if err != nil {
		return nil, nil, err
	}
	top, err := parseLVM(text)
	if err != nil {
		return nil, nil, err
	}
	return volumesOf(top, id, size)
}

// metadataArea is the first metadata area of a physical volume: it follows the
// list of data areas; both lists end with zeros.
func metadataArea(list []byte) (offset uint64, ok bool) {
	lists := 0
	for ; len(list) >= 16; list = list[16:] {
		offset, size := binary.LittleEndian.Uint64(list), binary.LittleEndian.Uint64(list[8:])
		switch {
		case offset == 0 && size == 0:
			if lists++; lists == 2 {
				return 0, false
			}
		case offset == 0:
		case lists == 1:
			return offset, true
		}
	}
	return 0, false
}

// readMetadata reads the newest text of a metadata area, which is a ring.
func readMetadata(r io.ReaderAt, size int64, area uint64) ([]byte, error) {
	const headerSize = 512
	if area > uint64(size)-headerSize {
		return nil, errLVM
	}
	h := make([]byte, headerSize)
	if _, err := r.ReadAt(h, int64(area)); err != nil {
		return nil, err
	}
	ring := binary.LittleEndian.Uint64(h[32:])
	from, length := binary.LittleEndian.Uint64(h[40:]), binary.LittleEndian.Uint64(h[48:])
	if string(h[4:20]) != " LVM2 x[5A%r0N*>" || ring <= headerSize || ring > uint64(size)-area || length == 0 || length > maxMetadata || length > ring || from < headerSize || from >= ring {
		return nil, errLVM
	}
	text := make([]byte, length)
	first := min(length, ring-from)
	if _, err := r.ReadAt(text[:first], int64(area+from)); err != nil {
		return nil, err
	}
	if first < length {
		if _, err := r.ReadAt(text[first:], int64(area+headerSize)); err != nil {
			return nil, err
		}
	}
	return bytes.TrimRight(text, "\x00"), nil
}

// volumesOf finds the one volume group in the metadata and its volumes.
func volumesOf(top section, id string, size int64) (found []volume, scattered []string, err error) {
	for group, v := range top {
		vg, ok := v.(section)
		if !ok {
			continue
		}
		extent, ok := vg["extent_size"].(int64)
		if !ok || extent <= 0 || extent > 1<<40 {
			return nil, nil, errLVM
		}
		pv, start := "", int64(0)
		for name, p := range vg.section("physical_volumes") {
			if s, ok := p.(section); ok && strings.ReplaceAll(s.text("id"), "-", "") == id {
				pv = name
				start, _ = s["pe_start"].(int64)
			}
		}
		if pv == "" || start <= 0 {
			return nil, nil, errLVM
		}
		for name, l := range vg.section("logical_volumes") {
			lv, ok := l.(section)
			if !ok {
				return nil, nil, errLVM
			}
			first, count, ok := lv.inOnePiece(pv)
			offset, bytes := (start+first*extent)*512, count*extent*512
			if !ok || offset <= 0 || bytes <= 0 || offset > size || bytes > size-offset {
				scattered = append(scattered, group+"/"+name)
				continue
			}
			found = append(found, volume{group, name, offset, bytes})
		}
	}
	slices.SortFunc(found, func(a, b volume) int { return strings.Compare(a.group+"/"+a.name, b.group+"/"+b.name) })
	slices.Sort(scattered)
	return found, scattered, nil
}

// inOnePiece returns a logical volume's first extent on the physical volume and
// how many there are, where its segments follow each other there.
func (s section) inOnePiece(pv string) (first, count int64, ok bool) {
	const most = 1 << 24 // extents; keeps sums far from overflowing
	segments, _ := s["segment_count"].(int64)
	if segments < 1 || segments > 1000 {
		return 0, 0, false
	}
	for i := range segments {
		seg := s.section(fmt.Sprintf("segment%d", i+1))
		n, _ := seg["extent_count"].(int64)
		stripes, _ := seg["stripes"].([]any)
		if seg.text("type") != "striped" || n <= 0 || n > most || len(stripes) != 2 || stripes[0] != any(pv) {
			return 0, 0, false
		}
		at, isNumber := stripes[1].(int64)
		if !isNumber || at < 0 || at > most || (i > 0 && at != first+count) {
			return 0, 0, false
		}
		if i == 0 {
			first = at
		}
		count += n
	}
	return first, count, count <= most
}
