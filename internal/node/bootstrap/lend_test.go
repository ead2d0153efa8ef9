package bootstrap

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"
)

// Who asks is told the server's clock, where it tells it.
func TestAskTellsTheDate(t *testing.T) {
	t.Parallel()
	noon, text := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), []string{"Sat, 21 Nov 2026 12:00:00 GMT"}
	for _, c := range []struct {
		header http.Header
		want   time.Time
	}{
		{http.Header{"Date": text}, noon},
		{http.Header{"Date": nil, "date": text}, noon}, // "nil" has net/http send none of its own
		{http.Header{"Date": nil, "X-Date": text}, time.Time{}},
		{http.Header{"Date": {"noon"}}, time.Time{}},
	} {
		want := c.want
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { maps.Copy(w.Header(), c.header) }))
		u, err := url.Parse(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		var got time.Time
		if _, _, _, err := Ask(t.Context(), Question{Method: "GET", URL: u, Within: 5 * time.Second, Date: &got}); err != nil || !got.Equal(want) {
			t.Errorf("%s: %v, want %s", got, err, want)
		}
		s.Close()
	}
}
