package disk

import (
	"bytes"
	"testing"
)

func TestParseLVM(t *testing.T) {
	s, err := parseLVM([]byte("# c\nvg {\n a = 1 # x\n b = \"q\\\"q\"\n c = [\"pv0\", 7]\n d { e = [] }\n}\nversion = 1\n"))
	if err != nil {
		t.Fatal(err)
	}
	vg := s.section("vg")
	list, _ := vg["c"].([]any)
	if vg["a"] != any(int64(1)) || vg.text("b") != `q"q` || len(list) != 2 || list[0] != any("pv0") || list[1] != any(int64(7)) || vg.section("d") == nil {
		t.Errorf("read %v", s)
	}
	for _, bad := range []string{"}", "a {", "a = \"x", "a = [1", "a", "= 1", "a = b c = d", "a{a{a{a{a{a{a{a{a{a{}}}}}}}}}}"} {
		if _, err := parseLVM([]byte(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

func FuzzParseLVM(f *testing.F) {
	f.Add([]byte("vg { extent_size = 8192\n physical_volumes { pv0 { id = \"x\" pe_start = 2048 } } logical_volumes { l { segment_count = 1 segment1 { type = \"striped\" extent_count = 1 stripes = [\"pv0\", 0] } } } }"))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := parseLVM(text)
		if err != nil {
			return
		}
		const size = 1 << 30
		found, _, err := volumesOf(s, "x", size)
		for _, v := range found {
			if err != nil || v.offset <= 0 || v.bytes <= 0 || v.offset+v.bytes > size {
				t.Errorf("a volume outside of its disk: %+v", v)
			}
		}
	})
}

func FuzzPartitionTable(f *testing.F) {
	mbr := make([]byte, 2048)
	mbr[510], mbr[511] = 0x55, 0xaa
	f.Add(mbr)
	gpt := make([]byte, 4096)
	copy(gpt[512:], "EFI PART")
	gpt[512+72], gpt[512+80], gpt[512+84] = 2, 4, 128
	gpt[1024], gpt[1024+32], gpt[1024+40] = 1, 3, 5
	f.Add(gpt)
	f.Fuzz(func(t *testing.T, b []byte) {
		table, err := readTable(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		for _, e := range table {
			if e.offset <= 0 || e.bytes <= 0 || e.offset+e.bytes > int64(len(b)) {
				t.Errorf("a partition outside of its disk: %+v", e)
			}
		}
	})
}

func FuzzVolumes(f *testing.F) {
	f.Add(append(make([]byte, 512), "LABELONE"...))
	f.Fuzz(func(t *testing.T, b []byte) {
		if found, _, err := readVolumes(bytes.NewReader(b), int64(len(b))); err == nil {
			for _, v := range found {
				if v.offset+v.bytes > int64(len(b)) {
					t.Errorf("a volume outside of its disk: %+v", v)
				}
			}
		}
	})
}
