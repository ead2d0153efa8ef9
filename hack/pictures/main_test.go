package main

import (
	"flag"
	"os"
	"strings"
	"testing"
)

const images = "../../docs/img"

var update = flag.Bool("update", false, "draw the pictures again")

// TestPictures compares the pictures with the tables that they show.
func TestPictures(t *testing.T) {
	if *update {
		if err := draw(images); err != nil {
			t.Fatal(err)
		}
	}
	for name, picture := range pictures {
		want, err := picture()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, err := os.ReadFile(images + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("docs/img/%s is not what the code's tables say: run go test ./hack/pictures -update, and look at it", name)
		}
	}
}

func TestOverlapIsRefused(t *testing.T) {
	for want, draw := range map[string]func(*canvas){
		"overlaps":     func(c *canvas) { c.text(20, 20, "", "start", "one"); c.text(30, 24, "", "start", "two") },
		"does not fit": func(c *canvas) { c.text(width-10, 20, "", "start", "too long") },
	} {
		c := &canvas{}
		draw(c)
		if _, err := c.picture(100, "t", "d"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error that says %q: %v", want, err)
		}
	}
}
