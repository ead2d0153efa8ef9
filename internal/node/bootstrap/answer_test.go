package bootstrap

import (
	"bytes"
	"strings"
	"testing"
)

func TestReadAnswer(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	for name, c := range map[string]struct{ answer, body, wrong string }{
		"by length":           {ok + "Content-Length: 5\r\n\r\nhelloX", "hello", ""},
		"by chunks":           {ok + "transfer-encoding: Chunked\r\n\r\n5;x=y\r\nhello\r\n1\r\n!\r\n0\r\n\r\n", "hello!", ""},
		"by the end":          {ok + "\r\nhello", "hello", ""},
		"after others":        {"HTTP/1.1 100 Continue\r\n\r\n" + ok + "Content-Length: 2\r\n\r\nhi", "hi", ""},
		"none":                {"HTTP/1.1 204 No Content\r\n\r\n", "", ""},
		"too short":           {ok + "Content-Length: 5\r\n\r\nhell", "", "unexpected EOF"},
		"too long":            {ok + "Content-Length: 99999999\r\n\r\n", "", "too long"},
		"a negative length":   {ok + "Content-Length: -1\r\n\r\n", "", "of the length"},
		"a chunk of nonsense": {ok + "Transfer-Encoding: chunked\r\n\r\nxyz\r\n", "", "a chunk of the size"},
		"a chunk that lies":   {ok + "Transfer-Encoding: chunked\r\n\r\n2\r\nhello\r\n0\r\n\r\n", "", "longer than it says"},
		"chunks without end":  {ok + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "", "EOF"},
		"many chunks":         {ok + "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat("fffff\r\n"+strings.Repeat("x", 0xfffff)+"\r\n", 4), "", "too long"},
		"a head without end":  {ok + strings.Repeat("a: b\r\n", 20000), "", ""},
		"a line without end":  {ok + strings.Repeat("x", 200000), "", ""},
		"others for ever":     {strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 9), "", ""},
		"something else":      {"SSH-2.0-x\r\n", "", "not an HTTP answer"},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := readAnswer(strings.NewReader(c.answer))
			if c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)) {
				t.Fatalf("%+v, %v; want %q", a, err, c.wrong)
			}
			if c.body != "" && (err != nil || string(a.body) != c.body || a.code != 200) {
				t.Errorf("%d %q, %v; want %q", a.code, a.body, err, c.body)
			}
			if c.body == "" && c.wrong == "" && a.code == 200 && err == nil {
				t.Errorf("taken: %.80q", a.body)
			}
		})
	}
}

func FuzzReadAnswer(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"))
	f.Fuzz(func(t *testing.T, text []byte) {
		a, err := readAnswer(bytes.NewReader(text))
		if err == nil && (a.code < 100 || a.code > 999 || len(a.body) > maxAnswer || len(a.body) > len(text)) {
			t.Errorf("%d, %d bytes of %d", a.code, len(a.body), len(text))
		}
	})
}
