package azsim

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// An operation's URL is as long as Azure's, and holds as it was answered alone.
func TestOperationURLIsTakenVerbatim(t *testing.T) {
	inVirtualTime(t, nil, func(b *bench) {
		r := b.sendAbsolute("PUT", groupID("Microsoft.Compute/disks/d"), "2024-03-02",
			`{"location":"westeurope","properties":{"diskSizeGB":4,"creationData":{"createOption":"Empty"}}}`)
		at := strings.TrimPrefix(r.Header.Get("Azure-AsyncOperation"), InProcess)
		if len(at) < 2048 {
			t.Errorf("the URL has %d bytes: %s", len(at), at)
		}
		if got := b.sendAbsolute("GET", at, "", ""); got.StatusCode != http.StatusOK {
			t.Errorf("as it was answered: %s", got.Status)
		}
		path, query, _ := strings.Cut(at, "?")
		for _, name := range []string{"p", "t", "c", "s", "h"} {
			q, err := url.ParseQuery(query)
			if err != nil || q.Get(name) == "" {
				t.Errorf("no %s in %s: %v", name, at, err)
			}
			q.Del(name)
			if got := b.sendAbsolute("GET", path+"?"+q.Encode(), "", ""); got.StatusCode != http.StatusBadRequest {
				t.Errorf("without %s: %s", name, got.Status)
			}
		}
	})
}
