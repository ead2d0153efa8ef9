package draw

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
)

// The browser's tests are a module of their own and have the pages written by
// this: go test -run TestPages -pages=DIR.
var pages = flag.String("pages", "", "write the samples' pages and pictures into this folder")

func TestPages(t *testing.T) {
	all := samples(t)
	all["large"] = large(400)
	for name, sample := range all {
		var page, picture bytes.Buffer
		if err := HTML(&page, sample); err != nil {
			t.Fatal(err)
		}
		if err := SVG(&picture, sample); err != nil {
			t.Fatal(err)
		}
		if *pages == "" {
			continue
		}
		for ext, text := range map[string][]byte{".html": page.Bytes(), ".svg": picture.Bytes()} {
			if err := os.WriteFile(filepath.Join(*pages, name+ext), text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}
