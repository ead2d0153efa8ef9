package recorded

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/ortet/ortet/azsim"
)

// prepare makes the Azure that the session began with.
func prepare(s *session) *azsim.Server {
	azure := &azsim.Server{ResourceGroup: "azsim", RetiredOffers: true} // retired after the recordings
	names := []string{}
	add := func(name string) {
		if name = strings.ToLower(strings.ReplaceAll(name, " ", "")); name != "" && name != "global" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	azure.ImageVersions = map[string]string{}
	for n := range s.Interactions {
		i := &s.Interactions[n]
		eachMember(i.Response, func(key string, value any) { noteVersion(azure.ImageVersions, key, value) })
		if m := subscriptionPath.FindStringSubmatch(i.URI); m != nil && azure.Subscription == "" {
			azure.Subscription = m[1]
		}
		if m := locationPath.FindStringSubmatch(i.path()); m != nil {
			add(m[1])
		}
		eachMember(i.Request, func(key string, value any) {
			if text, ok := value.(string); ok && (key == "location" || key == "targetRegions.name") && !strings.HasPrefix(text, "[") {
				add(text)
			}
		})
	}
	if len(names) == 0 {
		add("westus")
	}
	for _, name := range names {
		l := azsim.Location{Name: name}
		if !withoutZones[name] {
			l.Zones = []string{"1", "2", "3"}
		}
		azure.Locations = append(azure.Locations, l)
	}
	azure.Principals = append([]azsim.Principal{
		{Name: "caller", ClientID: azsim.DefaultClientID, Secret: azsim.DefaultClientSecret, Roles: []azsim.Grant{{Role: "Owner"}}},
	}, strangers(s)...)
	return azure
}

// noteVersion learns which version was the latest of a marketplace image on the day of the
// recording: of what was made of the latest, Azure shows it as exactVersion, in older API
// versions as version.
func noteVersion(latest map[string]string, key string, value any) {
	ref, ok := value.(map[string]any)
	if !ok || key != "imageReference" || ref["publisher"] == nil {
		return
	}
	version, exact := ref["exactVersion"].(string)
	if !exact {
		version, _ = ref["version"].(string)
	}
	name := strings.ToLower(fmt.Sprint(ref["publisher"], ":", ref["offer"], ":", ref["sku"]))
	if latest[name] == "" && version != "" && !strings.EqualFold(version, "latest") {
		latest[name] = version
	}
}

// strangers are principals that the session names before an answer did: they were there.
func strangers(s *session) (all []azsim.Principal) {
	known := map[string]bool{}
	for n := range s.Interactions {
		eachMember(s.Interactions[n].Request, func(key string, value any) {
			id, ok := value.(string)
			if ok && key == "principalId" && guid.MatchString(id) && !known[id] {
				known[id] = true
				all = append(all, azsim.Principal{Name: id, ClientID: id, ObjectID: id})
			}
		})
		eachMember(s.Interactions[n].Response, func(key string, value any) {
			if id, ok := value.(string); ok && key == "principalId" {
				known[id] = true
			}
		})
	}
	return all
}

// eachMember calls f with all members of a body; those of targetRegions with that before.
func eachMember(body any, f func(key string, value any)) { eachMemberOf("", body, f) }

func eachMemberOf(parent string, body any, f func(key string, value any)) {
	switch v := body.(type) {
	case map[string]any:
		for _, key := range sortedKeys(v) {
			if f(key, v[key]); parent == "targetRegions" {
				f(parent+"."+key, v[key])
			}
			eachMemberOf(key, v[key], f)
		}
	case []any:
		for _, e := range v {
			eachMemberOf(parent, e, f)
		}
	}
}

// create makes the resource groups that the session uses without making them, with the
// location and tags that Azure returned.
func (r *replayer) create(s *session) error {
	spec := &azsim.Spec{}
	at, decided, madeGroup := map[string]int{}, map[string]bool{}, map[string]bool{}
	for n := range s.Interactions {
		i := &s.Interactions[n]
		m := groupPath.FindStringSubmatch(i.path())
		if m != nil && i.Method == http.MethodPut && i.Status == http.StatusCreated && typeOf(i) == groupType {
			madeGroup[strings.ToLower(m[1])] = true
		}
	}
	for n := range s.Interactions {
		i := &s.Interactions[n]
		m := groupPath.FindStringSubmatch(i.path())
		if m == nil {
			continue
		}
		key, itself := strings.ToLower(m[1]), typeOf(i) == groupType
		if !decided[key] {
			decided[key] = true
			if madeGroup[key] || i.Status == http.StatusNotFound {
				continue
			}
			at[key] = len(spec.ResourceGroups)
			spec.ResourceGroups = append(spec.ResourceGroups, azsim.GroupSpec{Name: m[1]})
		}
		group, ok := i.Response.(map[string]any)
		index, made := at[key]
		if !ok || !made || !itself || i.Method != http.MethodGet || i.Status != http.StatusOK || spec.ResourceGroups[index].Location != "" {
			continue
		}
		spec.ResourceGroups[index].Location, _ = group["location"].(string)
		if tags, ok := group["tags"].(map[string]any); ok {
			spec.ResourceGroups[index].Tags = map[string]string{}
			for key, value := range tags {
				spec.ResourceGroups[index].Tags[key] = fmt.Sprint(value)
			}
		}
	}
	return r.azure.Create(r.ctx, spec)
}
