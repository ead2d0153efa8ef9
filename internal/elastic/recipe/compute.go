package recipe

import (
	"encoding/base64"
	"fmt"
	"strconv"

	"github.com/ortet/ortet/internal/elastic"
)

const (
	machineType   = "Microsoft.Compute/virtualMachines"
	poolType      = "Microsoft.Compute/virtualMachineScaleSets"
	autoscaleType = "Microsoft.Insights/autoscaleSettings"
)

// Names of the compute template's parameters and outputs.
const (
	ParameterSSHPublicKey = "sshPublicKey"
	ParameterCapacity     = "capacity"
	ParameterServerExists = "serverExists"

	OutputAddress        = "serverAddress"
	OutputFQDN           = "serverFQDN"
	OutputPrivateAddress = "serverPrivateAddress"
)

// compute is the template of the compute group.
func (r *renderer) compute(customData map[string][]byte, recipe string) (Deployment, error) {
	all, err := r.network()
	if err != nil {
		return Deployment{}, err
	}
	all = append(all, r.server(customData[ServerName], recipe))
	capacity := object{}
	for i := range r.c.Spec.Pools {
		p := &r.c.Spec.Pools[i]
		capacity[p.Name] = r.capacity(p)
		if r.facts.Leave[p.Name] {
			continue
		}
		all = append(all, r.pool(p, customData[p.Name]))
		if p.Count == nil && p.Max != nil {
			all = append(all, r.autoscale(p))
		}
	}
	all = append(all, r.roles(scopeGroup, scopeServer)...)
	public := call("reference", idOf(addressType, ServerName), quote(networkAPI))
	private, err := ServerAddress(r.c)
	if err != nil {
		return Deployment{}, err
	}
	output := func(value string) object { return object{"type": "string", "value": expression(value)} }
	return Deployment{
		Group: r.c.Spec.Groups.Compute,
		Template: template(object{
			ParameterSSHPublicKey: parameter("string", nil, "Public key of the administrator, a line of authorized_keys"),
			ParameterCapacity:     parameter("object", r.firstCapacity(), "Number of instances of each pool, by its name"),
			ParameterServerExists: parameter("bool", false, "Whether VM server exists; it is left out then, since its customData cannot change"),
		}, all, object{
			OutputAddress:        output(public + ".ipAddress"),
			OutputFQDN:           output(public + ".dnsSettings.fqdn"),
			OutputPrivateAddress: object{"type": "string", "value": private},
		}),
		Parameters: object{ParameterSSHPublicKey: r.facts.SSHPublicKey, ParameterCapacity: capacity, ParameterServerExists: r.facts.ServerExists},
	}, nil
}

func parameter(kind string, value any, description string) object {
	p := object{"type": kind, "metadata": object{"description": description}}
	if value != nil {
		p["defaultValue"] = value
	}
	return p
}

// FileCount is the number of instances that cluster.yaml gives a pool, the value of
// TagCount: count, or min of a pool that Azure scales.
func FileCount(p *elastic.Pool) int {
	switch {
	case p.Count != nil:
		return *p.Count
	case p.Min != nil:
		return *p.Min
	}
	return 0
}

func (r *renderer) capacity(p *elastic.Pool) int {
	if n, some := r.facts.Capacity[p.Name]; some {
		return n
	}
	return FileCount(p)
}

func (r *renderer) firstCapacity() object {
	all := object{}
	for i := range r.c.Spec.Pools {
		all[r.c.Spec.Pools[i].Name] = FileCount(&r.c.Spec.Pools[i])
	}
	return all
}

// server is the machine of the k3s server.
func (r *renderer) server(customData []byte, recipe string) object {
	s := r.c.Spec.Server
	profile := r.osProfile(customData)
	profile["computerName"] = ServerName
	vm := r.tagged(resource(machineType, ServerName, computeAPI, object{
		"hardwareProfile": object{"vmSize": s.Size},
		"storageProfile":  r.storageProfile(s.Image, s.DiskGB, s.DiskType, true),
		"osProfile":       profile,
		"networkProfile": object{"networkInterfaces": list(object{
			"id": expression(idOf(nicType, ServerName)), "properties": object{"primary": true},
		})},
		"diagnosticsProfile": diagnostics(),
	}))
	tag(vm, TagRole, "server")
	tag(vm, TagRecipe, recipe)
	return with(vm, object{
		"condition": expression("not(parameters('" + ParameterServerExists + "'))"),
		"identity":  r.identities(ServerIdentity),
		"dependsOn": list(expression(idOf(nicType, ServerName))),
	})
}

// pool is a scale set of agents.
func (r *renderer) pool(p *elastic.Pool, customData []byte) object {
	profile := r.osProfile(customData)
	profile["computerNamePrefix"] = p.Name
	machine := object{
		"storageProfile": r.storageProfile(p.Image, p.DiskGB, p.DiskType, false),
		"osProfile":      profile,
		"networkProfile": object{"networkInterfaceConfigurations": list(object{"name": "agent", "properties": object{
			"primary": true,
			"ipConfigurations": list(object{"name": "agent", "properties": object{
				"primary": true, "subnet": reference(subnetID(agentsSubnet)),
			}}),
		}})},
		"diagnosticsProfile": diagnostics(),
		"priority":           p.Priority,
	}
	if p.Priority == elastic.Spot {
		machine["evictionPolicy"] = p.EvictionPolicy
		machine["billingProfile"] = object{"maxPrice": -1} // the price of Regular at most
	} else {
		// Refused on Spot, where scheduled events have Preempt.
		machine["scheduledEventsProfile"] = object{"terminateNotificationProfile": object{"enable": true, "notBeforeTimeout": "PT5M"}}
	}
	properties := object{
		"orchestrationMode": "Uniform",
		// Surplus instances would join and vanish.
		"overprovision": false,
		// A single group holds 100 instances, and cannot come back once it was given up.
		"singlePlacementGroup":  false,
		"upgradePolicy":         object{"mode": "Manual"},
		"virtualMachineProfile": machine,
	}
	if p.ScaleInPolicy != "" {
		properties["scaleInPolicy"] = object{"rules": list(p.ScaleInPolicy)}
	}
	set := r.tagged(resource(poolType, p.Name, computeAPI, properties))
	tag(set, TagRole, "pool")
	tag(set, TagCount, strconv.Itoa(FileCount(p)))
	if len(p.Zones) > 0 {
		set["zones"] = list(p.Zones...)
	}
	return with(set, object{
		"sku":       object{"name": p.Size, "tier": "Standard", "capacity": expression("parameters('" + ParameterCapacity + "')." + p.Name)},
		"identity":  r.identities(AgentIdentity),
		"dependsOn": list(expression(idOf(vnetType, VNetName))),
	})
}

// autoscale adds an instance above 80 % of CPU, and removes one below 10 %.
func (r *renderer) autoscale(p *elastic.Pool) object {
	set := expression(idOf(poolType, p.Name))
	step := func(operator string, threshold int, direction string) object {
		return object{
			"metricTrigger": object{
				"metricName": "Percentage CPU", "metricResourceUri": set, "timeGrain": "PT1M", "timeWindow": "PT5M",
				"statistic": "Average", "timeAggregation": "Average", "operator": operator, "threshold": threshold,
			},
			"scaleAction": object{"direction": direction, "type": "ChangeCount", "value": "1", "cooldown": "PT5M"},
		}
	}
	low, high := strconv.Itoa(FileCount(p)), strconv.Itoa(*p.Max)
	return with(r.tagged(resource(autoscaleType, p.Name, autoscaleAPI, object{
		"name": p.Name, "enabled": true, "targetResourceUri": set,
		"profiles": list(object{
			"name":     "cpu",
			"capacity": object{"minimum": low, "maximum": high, "default": low},
			"rules":    list(step("GreaterThan", 80, "Increase"), step("LessThan", 10, "Decrease")),
		}),
	})), object{"dependsOn": list(set)})
}

func (r *renderer) osProfile(customData []byte) object {
	user := r.c.Spec.Access.User
	return object{
		"adminUsername": user,
		"customData":    base64.StdEncoding.EncodeToString(customData),
		"linuxConfiguration": object{
			"disablePasswordAuthentication": true,
			"ssh": object{"publicKeys": list(object{
				"path": fmt.Sprintf("/home/%s/.ssh/authorized_keys", user), "keyData": expression("parameters('" + ParameterSSHPublicKey + "')"),
			})},
		},
	}
}

func (r *renderer) storageProfile(i elastic.Image, diskGB int, diskType string, plain bool) object {
	if i == (elastic.Image{}) {
		i = r.c.Spec.Image
	}
	image := object{"id": i.ID}
	if i.ID == "" {
		version := i.Version
		if version == "" {
			version = "latest"
		}
		image = object{"publisher": i.Publisher, "offer": i.Offer, "sku": i.SKU, "version": version}
	}
	disk := object{"createOption": "FromImage", "caching": "ReadWrite", "managedDisk": object{"storageAccountType": diskType}}
	if diskGB > 0 {
		disk["diskSizeGB"] = diskGB
	}
	if plain { // scale sets always delete their instances' disks
		disk["deleteOption"] = "Delete"
	}
	return object{"imageReference": image, "osDisk": disk}
}

// diagnostics keeps serial logs in storage that Azure manages.
func diagnostics() object { return object{"bootDiagnostics": object{"enabled": true}} }
