package recorded

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const smallSession = `{"source": "made up", "session": "one", "interactions": [{"method": "GET", "uri": "/subscriptions", "status": 200}]}`

func TestReadSessionsNamesBadInput(t *testing.T) {
	for _, c := range []struct{ name, file, text, want string }{
		{"no JSON", "a/bad.json", "{", "bad.json: unexpected end of JSON input"},
		{"no requests", "empty.json", `{"source": "s", "session": "n", "interactions": []}`, "empty.json: session without requests"},
		{"no URI", "half.json", `{"interactions": [{"method": "GET", "status": 200}]}`, "half.json: interaction 0"},
		{"nothing", "read.me", "", "no azure.tar.xz and no *.json"},
		{"no archive", archiveName, "text", archiveName + ": tar"},
	} {
		t.Run(c.name, func(t *testing.T) {
			folder := t.TempDir()
			path := filepath.Join(folder, c.file)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, _, err := readSessions(folder, t.TempDir()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
	none := filepath.Join(t.TempDir(), "none")
	if _, _, err := readSessions(none, t.TempDir()); err == nil || !strings.Contains(err.Error(), none) {
		t.Errorf("error %v of a missing folder, want its name", err)
	}
}

func TestReadSessionsUnpacksOnce(t *testing.T) {
	if _, err := exec.LookPath("xz"); err != nil {
		t.Skip("NOT RUN: xz is not installed")
	}
	source, folder, cache := t.TempDir(), t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(source, "one.json"), []byte(smallSession), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("tar", "-cJf", filepath.Join(folder, archiveName), "-C", source, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	read := func() string {
		sessions, hash, err := readSessions(folder, cache)
		if err != nil || len(sessions) != 1 || sessions[0].Name != "one" {
			t.Fatalf("sessions %v, error %v, want the one of the archive", sessions, err)
		}
		return hash
	}
	first := read()
	t.Setenv("PATH", "") // no tar from here on
	if second := read(); second != first {
		t.Errorf("content %s after %s, want the same", second, first)
	}
}

func TestSessionOrder(t *testing.T) {
	at := func(second string, i interaction) interaction {
		i.Headers["date"] = "Fri, 13 Dec 2019 18:08:" + second + " GMT"
		return i
	}
	const work = inSubscription + "/providers/Microsoft.Compute/locations/westus/operations/" + madeUpID
	mock := inGroup + "/providers/Microsoft.Resources" + renamedDeployment
	s := &session{Source: groupedSource, Interactions: []interaction{
		at("01", ask("PUT", "/a", "v", nil, 201, nil, "azure-asyncoperation", "https://any"+work)),
		at("03", ask("PUT", "/b", "v", "b'{\"x\": 1}'", 201, nil)),
		at("02", ask("GET", work, "v", nil, 200, nil)),
		at("03", ask("GET", work, "v", nil, 200, nil)),
		at("04", ask("PUT", mock, "v", nil, 201, object{"name": "d1"})),
		at("05", ask("GET", mock+"/operationStatuses/1", "v", nil, 200, object{"status": "Succeeded"})),
		at("06", ask("PUT", mock, "v", nil, 201, object{"name": "d2"})),
	}}
	s.order()
	got := ""
	for _, i := range s.Interactions {
		got += i.Method + " " + i.path()[strings.LastIndexByte(strings.TrimSuffix(i.path(), "/operationStatuses/1"), '/')+1:] + ", "
	}
	want := "PUT a, GET " + madeUpID + ", GET " + madeUpID + ", PUT b, PUT d1, GET d1/operationStatuses/1, PUT d2, "
	if got != want {
		t.Errorf("order %q, want %q", got, want)
	}
	if body, ok := s.Interactions[3].Request.(map[string]any); !ok || body["x"] != 1.0 {
		t.Errorf("Python's bytes are read as %v, want JSON", s.Interactions[3].Request)
	}
}
