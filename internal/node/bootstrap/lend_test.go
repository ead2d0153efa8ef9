package bootstrap

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"
)

// Who asks is told the server's clock, where it tells it.
func TestAskTellsTheDate(t *testing.T) {
	for want, header := range map[time.Time][]string{
		time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC): {"Sat, 21 Nov 2026 12:00:00 GMT"},
		{}: nil, // "nil" has net/http send none
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header()["Date"] = header }))
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
