package azsim

import (
	"encoding/json"
	"slices"
	"strings"
)

const (
	setNICType      = setType + "/networkInterfaces"
	instanceNICType = instanceType + "/networkInterfaces"
	nicType         = "Microsoft.Network/networkInterfaces"
	latestNetwork   = "2025-05-01" // API version
)

// networkVersions are API versions of Microsoft.Network: those before 2023-05-01 from a
// recorded list of Azure's (test/recorded), newer ones from its published specifications.
func networkVersions() []string {
	return []string{
		"2015-06-15",
		"2016-03-30", "2016-06-01", "2016-07-01", "2016-08-01", "2016-09-01", "2016-10-01", "2016-11-01", "2016-12-01",
		"2017-03-01", "2017-04-01", "2017-06-01", "2017-08-01", "2017-09-01", "2017-10-01", "2017-11-01",
		"2018-01-01", "2018-02-01", "2018-03-01", "2018-04-01", "2018-05-01", "2018-06-01", "2018-07-01", "2018-08-01", "2018-10-01", "2018-11-01", "2018-12-01",
		"2019-02-01", "2019-04-01", "2019-06-01", "2019-07-01", "2019-08-01", "2019-09-01", "2019-11-01", "2019-12-01",
		"2020-01-01", "2020-03-01", "2020-04-01", "2020-05-01", "2020-06-01", "2020-07-01", "2020-08-01", "2020-11-01",
		"2021-01-01", "2021-02-01", "2021-03-01", "2021-04-01", "2021-05-01", "2021-06-01", "2021-08-01", "2021-12-01",
		"2022-01-01", "2022-05-01", "2022-07-01", "2022-09-01", "2022-11-01",
		"2023-02-01", "2023-04-01", "2023-05-01", "2023-06-01", "2023-09-01", "2023-11-01",
		"2024-01-01", "2024-03-01", "2024-05-01", "2024-07-01", "2024-10-01", "2025-01-01", "2025-03-01", latestNetwork,
	}
}

// networkTypes are the network interfaces of instances. They are not stored: an
// instance's are what it has.
func networkTypes() []*resourceType {
	// Microsoft.Network answers below Microsoft.Compute in versions of its own.
	old := []string{"2017-03-30", "2018-10-01"}
	return []*resourceType{
		{name: setNICType, versions: old, list: uniformOnly("networkInterfaces.GET", listSetNICs), get: noResource},
		{name: instanceNICType, versions: old, list: numbered(listInstanceNICs), get: getInstanceNIC},
	}
}

func noResource(c *call) (*reply, error) { return nil, notFound(c.id) }

// A shownNIC is rendered when its page is encoded.
type shownNIC struct {
	s *Server
	e *entry
	n int // of the instance's interfaces
}

func (v shownNIC) id() string {
	x, _ := instanceOf(v.e)
	if x.flex {
		return memberNIC(v.e, x.nics[v.n].name)
	}
	return v.e.id.String() + "/networkInterfaces/" + x.nics[v.n].name
}

func (v shownNIC) MarshalJSON() ([]byte, error) {
	x, body := instanceOf(v.e)
	n := x.nics[v.n]
	id := v.id()
	var configs []any
	for i, c := range n.configs {
		version := "IPv4"
		if c.v6 {
			version = "IPv6"
		}
		p := map[string]any{"provisioningState": stateSucceeded, "privateIPAllocationMethod": "Dynamic", "privateIPAddressVersion": version, "primary": c.primary}
		if a := v.s.addressOf(v.e, v.n, i); a.IsValid() {
			p["privateIPAddress"] = a.Addr().String()
		}
		if c.subnetID != "" {
			p["subnet"] = map[string]any{"id": c.subnetID}
		}
		pools, rules := v.balancers(c.name)
		if len(pools) > 0 {
			p["loadBalancerBackendAddressPools"] = idList(pools)
		}
		if len(rules) > 0 {
			p["loadBalancerInboundNatRules"] = idList(rules)
		}
		configs = append(configs, map[string]any{"name": c.name, "id": id + "/ipConfigurations/" + c.name, "properties": p})
	}
	out := map[string]any{"name": id[strings.LastIndexByte(id, '/')+1:], "id": id, "properties": map[string]any{
		"provisioningState": stateSucceeded, "resourceGuid": x.vmID[:34] + n.mac[10:], "ipConfigurations": configs,
		"macAddress": n.macText(), "primary": n.primary,
		"virtualMachine": map[string]any{"id": v.e.id.String()},
	}}
	if x.flex {
		out["type"], out["location"] = nicType, val(body.Location)
	}
	fillDefaults(out, interfaceDefaults, latestNetwork)
	return json.Marshal(out)
}

func (s *Server) nicsOf(list ...*entry) []shownNIC {
	var out []shownNIC
	for _, e := range list {
		x, _ := instanceOf(e)
		for i := range x.nics {
			out = append(out, shownNIC{s, e, i})
		}
	}
	return out
}

func (c *call) pageOfNICs(list []shownNIC) *reply {
	items := make([]any, len(list))
	for i, v := range list {
		items[i] = v
	}
	return c.pageOf(items)
}

// listSetNICs lists those of all instances of a Uniform scale set.
func listSetNICs(c *call) (*reply, error) {
	set, err := c.need()
	if err != nil {
		return nil, err
	}
	return c.pageOfNICs(c.s.nicsOf(c.s.instancesOf(set)...)), nil
}

func listInstanceNICs(c *call) (*reply, error) {
	e, err := c.need()
	if err != nil {
		return nil, err
	}
	return c.pageOfNICs(c.s.nicsOf(e)), nil
}

func getInstanceNIC(c *call) (*reply, error) {
	if e := c.s.find(c.id.parent()); e != nil {
		for _, v := range c.s.nicsOf(e) {
			if strings.EqualFold(v.id(), c.id.String()) {
				return ok(v), nil
			}
		}
	}
	return nil, notFound(c.id)
}

// memberNICs lists those of the members of Flexible sets, which are resources of
// their own.
func (c *call) memberNICs() []shownNIC {
	list := c.s.ofType(machineType, c.id.subscription, c.id.group)
	return c.s.nicsOf(slices.DeleteFunc(list, func(e *entry) bool {
		x, _ := instanceOf(e)
		return x.plain != nil
	})...)
}

// listNICs lists those and the stored ones.
func listNICs(c *call) (*reply, error) {
	items := []any{}
	for _, e := range c.s.ofType(nicType, c.id.subscription, c.id.group) {
		items = append(items, c.render(e))
	}
	for _, v := range c.memberNICs() {
		items = append(items, v)
	}
	return c.pageOf(items), nil
}

func getNIC(c *call) (*reply, error) {
	if c.s.find(c.id) != nil {
		return getWithETag(c)
	}
	for _, v := range c.memberNICs() {
		if strings.EqualFold(v.id(), c.id.String()) {
			return ok(v), nil
		}
	}
	return nil, notFound(c.id)
}
