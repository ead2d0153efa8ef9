package recorded

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const archiveName = "azure.tar.xz"

// A session is what one test of a client sent to Azure, in order.
type session struct {
	Source       string        `json:"source"`
	Name         string        `json:"session"`
	Interactions []interaction `json:"interactions"`
}

// An interaction is a request and Azure's answer.
type interaction struct {
	Method   string            `json:"method"`
	URI      string            `json:"uri"` // begins at the path
	Request  any               `json:"request"`
	Status   int               `json:"status"`
	Headers  map[string]string `json:"headers"` // names in lower case
	Response any               `json:"response"`
}

func (i *interaction) path() string {
	path, _, _ := strings.Cut(i.URI, "?")
	return path
}

// readSessions reads all sessions of a folder, by name, and a name of their content. The
// archive of the folder is unpacked into the cache; a folder without one holds *.json.
func readSessions(folder, cache string) (all []*session, hash string, err error) {
	if info, err := os.Stat(folder); err != nil {
		return nil, "", fmt.Errorf("cannot read recordings: %w", err)
	} else if !info.IsDir() {
		return nil, "", fmt.Errorf("cannot read recordings: %s is no folder", folder)
	}
	archive := filepath.Join(folder, archiveName)
	if _, err := os.Stat(archive); err == nil {
		if folder, err = unpack(archive, cache); err != nil {
			return nil, "", err
		}
	}
	sum := sha256.New()
	var wrong []error
	err = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".json" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		_, _ = sum.Write(text)
		s, err := readSession(text)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("cannot read recording %s: %w", path, err))
			return nil
		}
		s.Name = cmp.Or(s.Name, strings.TrimSuffix(filepath.Base(path), ".json"))
		all = append(all, s)
		return nil
	})
	if err := errors.Join(append(wrong, err)...); err != nil {
		return nil, "", err
	}
	if len(all) == 0 {
		return nil, "", fmt.Errorf("cannot read recordings: no %s and no *.json in %s", archiveName, folder)
	}
	slices.SortFunc(all, func(a, b *session) int { return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Name, b.Name)) })
	return all, hex.EncodeToString(sum.Sum(nil))[:12], nil
}

func readSession(text []byte) (*session, error) {
	var s session
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, err
	}
	if len(s.Interactions) == 0 {
		return nil, errors.New("session without requests")
	}
	for n, i := range s.Interactions {
		if i.Method == "" || !strings.HasPrefix(i.URI, "/") || i.Status == 0 {
			return nil, fmt.Errorf("interaction %d: needs method, uri from the path on, and status", n)
		}
	}
	s.order()
	return &s, nil
}

// groupedSource recorded a session's requests grouped by method and URI, not in their order.
const groupedSource = "azure-libraries-for-net"

// order restores the order of requests by Azure's dates. Others keep theirs: the clocks of
// Azure's services are a second apart.
func (s *session) order() {
	if s.Source == groupedSource {
		s.sort()
	}
	name := "" // of the last deployment that was renamed
	for n := range s.Interactions {
		i := &s.Interactions[n]
		if text, ok := i.Request.(string); ok {
			i.Request = plainText(text)
		}
		if !strings.Contains(i.path(), renamedDeployment) {
			continue
		}
		if answer, ok := i.Response.(map[string]any); ok {
			if text, ok := answer["name"].(string); ok {
				name = text
			}
		}
		if name != "" {
			i.URI = strings.Replace(i.URI, renamedDeployment, "/deployments/"+name, 1)
		}
	}
}

// sort sorts by date. Within a second, polls of an operation that began before it come first:
// who sends the next request has waited for them.
func (s *session) sort() {
	began := map[string]time.Time{}
	for n := range s.Interactions {
		i := &s.Interactions[n]
		for _, key := range i.operations() {
			if at, ok := began[key]; !ok || i.date().Before(at) {
				began[key] = i.date()
			}
		}
	}
	waited := func(i *interaction) int {
		if at, ok := began[operationKey(i.URI)]; ok && isPoll(i) && at.Before(i.date()) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(s.Interactions, func(a, b interaction) int {
		return cmp.Or(a.date().Compare(b.date()), waited(&a)-waited(&b))
	})
}

// operations are the keys of the operation that an answer names.
func (i *interaction) operations() (keys []string) {
	for _, header := range []string{"azure-asyncoperation", "location"} {
		if uri := i.Headers[header]; uri != "" && !isPoll(i) {
			keys = append(keys, operationKey(uri))
		}
	}
	return keys
}

// plainText reads what Python writes for a string of bytes; JSON in it is decoded.
func plainText(text string) any {
	if inner, ok := strings.CutPrefix(text, "b'"); ok {
		text = strings.NewReplacer(`\\`, `\`, `\'`, `'`, `\n`, "\n").Replace(strings.TrimSuffix(inner, "'"))
	}
	var body any
	if json.Unmarshal([]byte(text), &body) == nil {
		return body
	}
	return text
}

// renamedDeployment is what the Azure CLI's recorder wrote in URIs for the names of all
// deployments; answers have the real one.
const renamedDeployment = "/deployments/mock-deployment"

// unpack unpacks an archive once into a folder of the cache, which is named by its content.
func unpack(archive, cache string) (string, error) {
	text, err := os.ReadFile(archive)
	if err != nil {
		return "", fmt.Errorf("cannot read recordings: %w", err)
	}
	sum := sha256.Sum256(text)
	folder := filepath.Join(cache, "recordings", hex.EncodeToString(sum[:8]))
	if _, err := os.Stat(folder); err == nil {
		return folder, nil
	}
	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		return "", err
	}
	fresh, err := os.MkdirTemp(filepath.Dir(folder), "new-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(fresh) }()
	if out, err := exec.Command("tar", "-xJf", archive, "-C", fresh).CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot unpack %s: tar -xJ: %w: %s", archive, err, out)
	}
	if err := os.Rename(fresh, folder); err != nil {
		if _, other := os.Stat(folder); other != nil { // else another test unpacked it meanwhile
			return "", err
		}
	}
	return folder, nil
}

// date returns when Azure answered; zero if it was not recorded.
func (i *interaction) date() time.Time {
	at, _ := time.Parse(time.RFC1123, i.Headers["date"])
	return at
}
