package azsim

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ortet/ortet/azsim/metadata"
)

// imdsOf is the metadata service of an instance. Its answers are of the moment
// of the question.
func (s *Server) imdsOf(e *entry) http.Handler {
	return metadata.Service{
		Instance: func() map[string]any {
			s.mu.Lock()
			defer s.mu.Unlock()
			if x, _ := instanceOf(e); x.gone {
				return nil
			}
			return s.metadataOf(e)
		},
		Attest: func(nonce string) (string, error) { return s.attest(e, nonce) },
		Token:  func(q url.Values) (map[string]any, *metadata.Refusal) { return s.imdsToken(e, q) },
		Ask: func() time.Duration {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.ask(e, time.Now())
		},
		Events: func() (int, []metadata.ScheduledEvent) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.read(e, time.Now())
		},
		Approve: func(ids []string) bool { return s.approveEvents(e, ids) },
		Admit:   func(category string) bool { return s.admit(e, category) },
		Fault: func(category string, w http.ResponseWriter, r *http.Request) bool {
			f := s.imdsFault(e, category, r)
			return f != nil && f.metByIMDS(w, r)
		},
	}
}

// metadataOf is the document behind /metadata/instance. The caller holds the lock.
func (s *Server) metadataOf(e *entry) map[string]any {
	x, body := instanceOf(e)
	p := x.profile
	tags, tagsList := []string{}, []any{}
	for _, k := range slices.Sorted(maps.Keys(body.Tags)) {
		tags = append(tags, k+":"+val(body.Tags[k]))
		tagsList = append(tagsList, map[string]any{"name": k, "value": val(body.Tags[k])})
	}
	keys := []any{}
	admin := ""
	if o := p.OSProfile; o != nil {
		admin = val(o.AdminUsername)
		for _, k := range sshKeys(o) {
			keys = append(keys, map[string]any{"keyData": val(k.KeyData), "path": val(k.Path)})
		}
	}
	ref := x.image.ref
	priority, eviction, placement := "", "", val(x.placementGroupID())
	if isSpot(p) {
		priority, eviction = string(val(p.Priority)), string(val(p.EvictionPolicy))
	}
	secure, vtpm := "", ""
	if sec := p.SecurityProfile; sec != nil && sec.UefiSettings != nil {
		secure, vtpm = strconv.FormatBool(val(sec.UefiSettings.SecureBootEnabled)), strconv.FormatBool(val(sec.UefiSettings.VTpmEnabled))
	}
	data := []any{}
	for _, d := range dataDisksOf(body) {
		data = append(data, map[string]any{"lun": strconv.Itoa(int(val(d.Lun))), "name": val(d.Name), "caching": string(val(d.Caching)),
			"createOption": string(val(d.CreateOption)), "diskSizeGB": strconv.Itoa(int(val(d.DiskSizeGB))), "managedDisk": map[string]any{"id": diskIDOf(d)}})
	}
	osDisk := map[string]any{}
	if x.osDisk != nil && p.StorageProfile != nil && p.StorageProfile.OSDisk != nil {
		d := p.StorageProfile.OSDisk
		osDisk = map[string]any{"name": x.osDisk.id.name(), "osType": string(val(d.OSType)), "caching": string(val(d.Caching)),
			"createOption": string(val(d.CreateOption)), "managedDisk": map[string]any{"id": x.osDisk.id.String(), "storageAccountType": string(val(d.ManagedDisk.StorageAccountType))}}
		if d.DiffDiskSettings != nil {
			osDisk["diffDiskSettings"] = map[string]any{"option": string(val(d.DiffDiskSettings.Option))}
		}
	}
	setName, setID := "", ""
	if set := x.scaleSet(); set != nil {
		setName, setID = set.id.name(), set.id.String()
	}
	return map[string]any{
		"compute": map[string]any{
			"azEnvironment": "AzurePublicCloud", "customData": "", "evictionPolicy": eviction, "priority": priority,
			"location": normLocation(val(body.Location)), "name": val(body.Name), "vmId": x.vmID, "vmScaleSetName": setName, "virtualMachineScaleSet": map[string]any{"id": setID}, "vmSize": x.size, "zone": x.zone,
			"resourceGroupName": e.id.group, "resourceId": e.id.String(), "subscriptionId": e.id.subscription,
			"offer": val(ref.Offer), "publisher": val(ref.Publisher), "sku": val(ref.SKU), "version": val(ref.ExactVersion), "provider": "Microsoft.Compute",
			"osType": "Linux", "licenseType": val(p.LicenseType), "placementGroupId": placement, "userData": x.userData(time.Now()),
			"platformFaultDomain": strconv.Itoa(x.faultDomain()), "platformUpdateDomain": strconv.Itoa(x.id % 5), "isHostCompatibilityLayerVm": "false",
			"osProfile":  map[string]any{"adminUsername": admin, "computerName": x.hostName, "disablePasswordAuthentication": "true"},
			"plan":       map[string]any{"name": "", "product": "", "publisher": ""},
			"publicKeys": keys, "tags": strings.Join(tags, ";"), "tagsList": tagsList,
			"securityProfile": map[string]any{"secureBootEnabled": secure, "virtualTpmEnabled": vtpm},
			"storageProfile": map[string]any{"dataDisks": data, "osDisk": osDisk, "resourceDisk": map[string]any{"size": ""},
				"imageReference": map[string]any{"id": val(ref.ID), "offer": val(ref.Offer), "publisher": val(ref.Publisher), "sku": val(ref.SKU), "version": val(ref.Version)}},
		},
		"network": s.metadataNetwork(e),
	}
}

// imdsToken issues a token of one of the scale set's identities.
func (s *Server) imdsToken(e *entry, q url.Values) (map[string]any, *metadata.Refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x, _ := instanceOf(e)
	_, set := setOf(x.set)
	none := &metadata.Refusal{Status: http.StatusBadRequest, Reason: "invalid_request", Description: "Identity not found"}
	if set == nil || set.Identity == nil {
		return nil, none
	}
	var have []*principal
	var system *principal
	if id := val(set.Identity.PrincipalID); id != "" {
		if system = s.principalOf(id); system != nil {
			have = append(have, system)
		}
	}
	for _, rid := range slices.Sorted(maps.Keys(set.Identity.UserAssignedIdentities)) {
		if p := s.identityAt(rid); p != nil {
			have = append(have, p)
		}
	}
	matches := func(p *principal) bool {
		return strings.EqualFold(p.ClientID, q.Get("client_id")) || strings.EqualFold(p.ObjectID, q.Get("object_id")) || strings.EqualFold(p.ObjectID, q.Get("principal_id")) ||
			p.ResourceID != "" && (strings.EqualFold(p.ResourceID, q.Get("mi_res_id")) || strings.EqualFold(p.ResourceID, q.Get("msi_res_id")))
	}
	var use *principal
	asked := q.Get("client_id")+q.Get("object_id")+q.Get("principal_id")+q.Get("mi_res_id")+q.Get("msi_res_id") != ""
	switch {
	case asked:
		if i := slices.IndexFunc(have, matches); i >= 0 {
			use = have[i]
		}
	case system != nil:
		use = system
	case len(have) == 1:
		use = have[0]
	case len(have) > 1:
		return nil, &metadata.Refusal{Status: http.StatusBadRequest, Reason: "invalid_request", Description: "Multiple user assigned identities exist, please specify the clientId / resourceId of the identity in the token request"}
	}
	if use == nil {
		return nil, none
	}
	body := s.tokenBody(use, q.Get("resource"), time.Now())
	body["client_id"] = use.ClientID
	// This endpoint, unlike the log-in one, gives numbers as strings.
	for _, k := range []string{"expires_in", "ext_expires_in", "expires_on", "not_before"} {
		if v, ok := body[k]; ok {
			body[k] = numberText(v)
		}
	}
	return body, nil
}

func numberText(v any) string {
	switch v := v.(type) {
	case int:
		return strconv.Itoa(v)
	case string:
		return v
	case interface{ String() string }:
		return v.String()
	}
	return ""
}
