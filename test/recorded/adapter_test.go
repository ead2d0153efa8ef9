package recorded

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/ortet/ortet/internal/azure/arm"
	"github.com/ortet/ortet/internal/fleet"
)

const adapterGolden = "testdata/adapter.txt"

// Ortet's own adapter reads each recorded body without error, and each field of what it
// returns is what the recorded member says. Members that it reads and no recording has are
// those of the golden table.
func TestAdapterReadsRecordedBodies(t *testing.T) {
	sessions, hash := recordings(t)
	seen := map[string]int{} // members that a recording has, by kind
	read := map[string]int{} // bodies by kind
	for _, s := range sessions {
		for _, b := range bodiesOf(s) {
			for _, kind := range kinds {
				if slices.Contains(kind.types, b.typ) {
					read[kind.name]++
					note(seen, kind.name, kind.fields, b.object)
					for _, wrong := range kind.check(t, b) {
						t.Errorf("%s: %s of %s: %s", s.Name, kind.name, b.id, wrong)
					}
				}
			}
		}
	}
	got := adapterTable(hash, read, seen)
	if *update {
		if err := os.WriteFile(adapterGolden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(adapterGolden)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(want), "content "+hash) {
		t.Skipf("%s is of other recordings: its comparison is NOT RUN\n%s", adapterGolden, got)
	}
	if got != string(want) {
		t.Errorf("other members are found than %s says: compare, and accept it by -args -update\n%s", adapterGolden,
			changedLines(string(want), got))
	}
}

// A recordedBody is what Azure answered about one resource.
type recordedBody struct {
	typ    string
	id     fleet.ResourceID
	object tree
	// interfaces are those of a virtual machine.
	interfaces []any
}

// bodiesOf returns all resources of a session's answers, also those of lists. The view of an
// instance, which Azure shows at a path of its own or within the instance ($expand), is put
// into the instance as it was last seen.
func bodiesOf(s *session) (all []recordedBody) {
	instances := map[string]tree{}
	for n := range s.Interactions {
		i := &s.Interactions[n]
		object, ok := i.Response.(map[string]any)
		if !ok || i.Status >= http.StatusBadRequest || i.Method == http.MethodPost || isPoll(i) {
			continue
		}
		typ, path := typeOf(i), strings.TrimRight(i.path(), "/")
		last := strings.ToLower(path[strings.LastIndexByte(path, '/')+1:])
		switch elements, isList := object["value"].([]any); {
		case last == "instanceview" && typ == instanceType:
			id := strings.TrimSuffix(path[:len(path)-len(last)], "/")
			whole := maps.Clone(instances[strings.ToLower(id)])
			if whole == nil {
				whole = tree{"id": id, "name": id[strings.LastIndexByte(id, '/')+1:]}
			}
			inner, _ := whole["properties"].(map[string]any)
			if inner = maps.Clone(inner); inner == nil {
				inner = map[string]any{}
			}
			inner["instanceView"], whole["properties"] = object, inner
			all = append(all, recordedBody{typ: typ, id: fleet.ResourceID(id), object: whole})
		case views[last]:
		case isList:
			for _, element := range elements {
				if o, ok := element.(map[string]any); ok && o["id"] != nil {
					all = append(all, recordedBody{typ: typ, id: fleet.ResourceID(tree(o).text("id")), object: o})
				}
			}
		default:
			b := recordedBody{typ: typ, id: fleet.ResourceID(tree(object).text("id")), object: object}
			if b.id == "" {
				continue // what is no resource: an operation's result
			}
			if typ == instanceType {
				instances[strings.ToLower(string(b.id))] = object
			}
			all = append(all, b)
		}
	}
	return all
}

// A kind is one of Ortet's structs, and how the adapter reads it of recorded types.
type kind struct {
	name    string
	types   []string
	returns reflect.Type
	fields  []field
	doors   map[string]door
}

// A door is a public method of the adapter, before a recorded body.
type door func(t *testing.T, b recordedBody) (any, error)

// check reads a body through each door, and lists what is not as recorded.
func (k kind) check(t *testing.T, b recordedBody) (wrong []string) {
	t.Helper()
	for _, name := range sortedKeys(k.doors) {
		got, err := k.doors[name](t, b)
		if err != nil {
			wrong = append(wrong, name+": "+err.Error())
			continue
		}
		for _, difference := range compareFields(k.fields, got, b.object) {
			wrong = append(wrong, name+": "+difference)
		}
	}
	return wrong
}

// alone serves the body at its id.
func (b recordedBody) alone() map[fleet.ResourceID]any {
	return map[fleet.ResourceID]any{b.id: b.object}
}

// listed serves the body in the list that an id is in.
func (b recordedBody) listed(id fleet.ResourceID) map[fleet.ResourceID]any {
	at := strings.LastIndexByte(string(id), '/')
	return map[fleet.ResourceID]any{id[:at]: listOf(b.object)}
}

// adapterTable lists how many bodies of each kind were read, and the members that were in
// none of them.
func adapterTable(hash string, read, seen map[string]int) string {
	var out strings.Builder
	fmt.Fprintf(&out, "What Ortet's adapter reads, and no recorded body has. content %s\n", hash)
	names := map[string][]field{}
	for _, k := range kinds {
		names[k.name] = k.fields
	}
	for _, name := range sortedKeys(names) {
		fmt.Fprintf(&out, "\n%s: %d bodies\n", name, read[name])
		for _, f := range flatten(names[name], "") {
			for _, member := range f.members {
				if seen[name+" "+member] == 0 {
					fmt.Fprintf(&out, "  %s: %s\n", member, adapterKnown[name+" "+member])
				}
			}
		}
	}
	return out.String()
}

// served answers each GET by its path in lower case; what it has not is 404.
type served map[string]any

func (s served) Do(r *http.Request) (*http.Response, error) {
	answer, ok := s[strings.ToLower(r.URL.Path)]
	if !ok {
		return reply(r, http.StatusNotFound, nil, tree{"error": tree{"code": "ResourceNotFound", "message": r.URL.Path}})
	}
	return reply(r, http.StatusOK, nil, answer)
}

// cloudOf is the adapter, before answers by path.
func cloudOf(t *testing.T, answers map[fleet.ResourceID]any) *arm.Cloud {
	t.Helper()
	s := served{}
	for path, answer := range answers {
		s[strings.ToLower(string(path))] = answer
	}
	c, err := arm.New(adapterOptions(s))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func adapterOptions(transport policy.Transporter) arm.Options {
	const home = "https://management.azure.com"
	return arm.Options{Credential: anybody{}, Transport: transport, Cloud: cloud.Configuration{ActiveDirectoryAuthorityHost: home + "/",
		Services: map[cloud.ServiceName]cloud.ServiceConfiguration{cloud.ResourceManager: {Endpoint: home, Audience: home}}}}
}

type anybody struct{}

func (anybody) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: "any", ExpiresOn: time.Now().Add(time.Hour)}, nil
}

// listOf is a list as Azure answers it.
func listOf(elements ...any) tree { return tree{"value": elements} }

// only returns the one element of a list.
func only[T any](all []T, err error) (any, error) {
	if err == nil && len(all) != 1 {
		err = fmt.Errorf("%d elements instead of one", len(all))
	}
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// recordings reads the sessions, or skips the test.
func recordings(t *testing.T) ([]*session, string) {
	t.Helper()
	folder := os.Getenv("ORTET_RECORDINGS")
	if folder == "" {
		t.Skip("NOT RUN: ORTET_RECORDINGS does not name the folder of the recordings")
	}
	cache, err := cacheFolder()
	if err != nil {
		t.Fatal(err)
	}
	sessions, hash, err := readSessions(folder, cache)
	if err != nil {
		t.Fatal(err)
	}
	return sessions, hash
}

// Each field of what the adapter returns has a row, and each member of the golden table a
// source: also without recordings.
func TestAdapterFieldsAreComplete(t *testing.T) {
	read := map[string]bool{}
	for _, k := range kinds {
		for _, missing := range missingFields(k) {
			t.Errorf("%s: field %s has no row: name the members that it is read from", k.name, missing)
		}
		for _, f := range flatten(k.fields, "") {
			for _, member := range f.members {
				read[k.name+" "+member] = true
			}
		}
	}
	text, err := os.ReadFile(adapterGolden)
	if err != nil {
		t.Fatal(err)
	}
	for member, source := range adapterKnown {
		if _, name, _ := strings.Cut(member, " "); !read[member] || !strings.Contains(string(text), "\n  "+name+": "+source+"\n") {
			t.Errorf("%s is not in %s: a recording has it, or nothing reads it", member, adapterGolden)
		}
	}
	if strings.Contains(string(text), ": \n") {
		t.Errorf("%s: a member without its source", adapterGolden)
	}
}
