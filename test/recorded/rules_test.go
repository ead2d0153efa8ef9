package recorded

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"time"
)

// This file is what the comparison knows of Azure: which types count, what is no
// difference, and why.

// usedTypes are the types that Ortet uses; wantedTypes are those that azsim is to have for
// others. All other types are unwanted: azsim may refuse them, and what fails for it is a
// consequence.
var usedTypes = []string{
	"Microsoft.Authorization/roleAssignments", "Microsoft.Authorization/roleDefinitions",
	"Microsoft.Compute/disks", "Microsoft.Compute/galleries", "Microsoft.Compute/galleries/images",
	"Microsoft.Compute/galleries/images/versions", "Microsoft.Compute/snapshots",
	"Microsoft.Compute/virtualMachineScaleSets", "Microsoft.Compute/virtualMachineScaleSets/virtualMachines",
	"Microsoft.Compute/virtualMachines", "Microsoft.Compute/virtualMachines/extensions",
	"Microsoft.ManagedIdentity/userAssignedIdentities",
	"Microsoft.Network/natGateways", "Microsoft.Network/networkInterfaces", "Microsoft.Network/networkSecurityGroups",
	"Microsoft.Network/networkSecurityGroups/securityRules", "Microsoft.Network/publicIPAddresses",
	"Microsoft.Network/virtualNetworks", "Microsoft.Network/virtualNetworks/subnets",
	"Microsoft.Resources/deployments", "Microsoft.Resources/deployments/operations",
	"Microsoft.Resources/resourceGroups", "Microsoft.Resources/resources", "Microsoft.Resources/locations",
	"Microsoft.Storage/storageAccounts", "Microsoft.Storage/checkNameAvailability",
}

var wantedTypes = []string{
	"Microsoft.Compute/availabilitySets", "Microsoft.Compute/images", "Microsoft.Compute/locations/publishers",
	"Microsoft.Compute/locations/vmSizes", "Microsoft.Compute/proximityPlacementGroups", "Microsoft.Compute/sshPublicKeys",
	"Microsoft.Network/loadBalancers", "Microsoft.Network/loadBalancers/backendAddressPools",
	"Microsoft.Network/loadBalancers/networkInterfaces",
}

// views are last segments of a GET that show a resource, and are no type.
var views = map[string]bool{"instanceview": true, "vmsizes": true, "skus": true, "checkipaddressavailability": true}

// withoutZones are the regions of the recordings that have no availability zones.
var withoutZones = map[string]bool{"westus": true, "westcentralus": true, "northcentralus": true}

// sameByForm holds the rules that the form of both values decides: ids, times, GUIDs,
// generated names, and addresses that Azure chose. They name no member, since they hold for
// each; all are of values that Azure makes up and no client can foretell. What azsim made up
// instead is learned, so that later requests name that.
func (c *comparison) sameByForm(path string, recorded, got any) bool {
	want, ok1 := recorded.(string)
	have, ok2 := got.(string)
	if !ok1 || !ok2 {
		return false
	}
	if strings.EqualFold(c.mapping.text(want), have) && strings.HasPrefix(want, "/") {
		return true // ids have no letter case
	}
	if c.mapping.values[want] == have && have != "" {
		return true
	}
	name := strings.TrimSuffix(path[strings.LastIndexByte(path, '.')+1:], "[]")
	switch {
	case strings.HasPrefix(strings.ToLower(want), "/subscriptions/"):
		// An id with a generated name; one of another type is a difference.
		if !strings.EqualFold(typeOfID(want), typeOfID(have)) || !c.madeUp(want) {
			return false
		}
		c.mapping.learnID(want, have)
		return true
	case isTime(want):
		return isTime(have)
	case name == "duration" && duration.MatchString(want):
		return duration.MatchString(have) // measured
	case name == "templateHash":
		// The recorders replaced names in templates, and azsim is asked for other API versions.
		return decimal.MatchString(have)
	case strings.HasPrefix(want, "https://") && strings.Contains(want, publicCloud):
		return strings.Replace(want, publicCloud, simulatedCloud, 1) == have
	case strings.EqualFold(name, "etag"):
		return have != "" // the name of a state, new at each change
	case internalName.MatchString(want):
		// The domain is generated, a host name in front of it is not.
		host := internalName.FindStringSubmatch(have)
		return host != nil && host[1] == internalName.FindStringSubmatch(want)[1]
	case guid.MatchString(want):
		if !guid.MatchString(have) || c.mapping.isChosen(want) {
			return false
		}
		c.mapping.learn(want, have)
		return true
	case guidAtEnd.MatchString(want):
		// A name with a prefix that is not generated: of a community gallery.
		name := guidAtEnd.FindStringSubmatch(have)
		if name == nil || name[1] != guidAtEnd.FindStringSubmatch(want)[1] || c.mapping.isChosen(want) {
			return false
		}
		c.mapping.learn(want, have)
		return true
	case guidName.MatchString(want):
		// An id of a GUID and a name, whose parts the recorders replaced elsewhere only.
		was, is := guidName.FindStringSubmatch(want)[1], guidName.FindStringSubmatch(have)
		if is == nil || c.mapping.isChosen(want) || c.mapping.isChosen(was) && !strings.EqualFold(c.mapping.text(was), is[1]) {
			return false
		}
		c.mapping.learn(want, have)
		return true
	case generatedMember.MatchString(path) && c.typ != publishersType:
		if c.mapping.isChosen(want) {
			return false
		}
		c.mapping.learn(want, have)
		return have != ""
	case isAddress(want):
		if !isAddress(have) || c.mapping.isChosen(want) {
			return false
		}
		c.mapping.learn(want, have)
		return true
	}
	return false
}

// generatedMember matches names that Azure makes where the client gives none: of disks of a
// machine, of instances, of deployments.
var generatedMember = regexp.MustCompile(`(^|\[\]\.|osDisk\.)name$|(^|\.)(computerName|instanceId)$`)

// madeUp reports whether a segment of a recorded id was never named by the client.
func (c *comparison) madeUp(id string) bool {
	for segment := range strings.SplitSeq(strings.ToLower(id), "/") {
		if segment != "" && !c.mapping.chosen[segment] {
			return true
		}
	}
	return false
}

var (
	guid      = regexp.MustCompile(`^[0-9A-Fa-f]{8}-?([0-9A-Fa-f]{4}-?){3}[0-9A-Fa-f]{12}$`)
	guidAtEnd = regexp.MustCompile(`^([A-Za-z0-9]+)-[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$`)
	// guidName matches a GUID with a name behind it, such as a gallery's uniqueName.
	guidName = regexp.MustCompile(`^[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}-([^-].*)$`)
	// internalName matches a name in the domain of a virtual network, or the domain.
	internalName = regexp.MustCompile(`^(.*?)[a-z0-9]{26}\.[a-z]+\.internal\.cloudapp\.net$`)
	mac          = regexp.MustCompile(`^([0-9A-F]{2}-){5}[0-9A-F]{2}$`)
	duration     = regexp.MustCompile(`^PT([0-9]+H)?([0-9]+M)?([0-9.]+S)?$`)
	decimal      = regexp.MustCompile(`^[0-9]+$`)
)

// The domains of storage endpoints are the cloud's, as the subscription is the recorder's.
const publicCloud, simulatedCloud = ".core.windows.net/", ".azsim.invalid/"

func isTime(s string) bool {
	_, err := time.Parse(time.RFC3339, s)
	return err == nil
}

func isAddress(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil || mac.MatchString(s)
}

// A memberRule says that a difference in one member is none.
type memberRule struct {
	typ    string // of the resource; "" is any
	member string // its path, or the end of it
	how    string // "missing", "other value", "one too many"; "" is any
	reason string
	holds  func(c *comparison, recorded, got any) bool // nil always holds
}

func (r *memberRule) covers(c *comparison, path, how string, recorded, got any) bool {
	return (r.typ == "" || r.typ == c.typ) && (r.member == path || strings.HasSuffix(path, "."+r.member)) &&
		(r.how == "" || r.how == how) && (r.holds == nil || r.holds(c, recorded, got))
}

const (
	assignmentType = "Microsoft.Authorization/roleAssignments"
	deploymentType = "Microsoft.Resources/deployments"
	resourceType   = "Microsoft.Resources/resources"
	publishersType = "Microsoft.Compute/locations/publishers"
	machineType    = "Microsoft.Compute/virtualMachines"
	groupType      = "Microsoft.Resources/resourceGroups"
	galleryType    = "Microsoft.Compute/galleries"
	accountType    = "Microsoft.Storage/storageAccounts"
)

// memberRules are our own rules beside those of sameByForm: the table's second column.
var memberRules = []memberRule{
	{"", "value[]", "missing", "the recorder's subscription had resources of others", foreignElement},
	{resourceType, "nextLink", "missing", "the recorder's subscription had so many resources that lists had pages", nil},
	{resourceType, "value[]", "one too many", "the recorder's list went on in other pages", onePage},
	{accountType, "keys[].value", "other value", "keys are replaced in the recordings", nil},
	{machineType, "imageReference.exactVersion", "other value", "which version is the latest changes with every week", nil},
	{publishersType, "[].name", "other value", "which version is the latest changes with every week", nil},
	{publishersType, "name", "other value", "azsim's name of the latest version was learned, and is requested", learnedName},
	{publishersType, "[].id", "other value", "it ends with the version", nil},
	{machineType, "instanceView.osVersion", "other value", "of the image that was the latest on that day", nil},
	{machineType, "vmAgent.vmAgentVersion", "other value", "of the agent of that day", nil},
	{instanceType, "osVersion", "other value", "of the image that was the latest on that day", nil},
	{instanceType, "vmAgent.vmAgentVersion", "other value", "of the agent of that day", nil},
	{instanceType, "platformFaultDomain", "other value", "it follows from the instance's id, which Azure chose", nil},
	{instanceType, "platformUpdateDomain", "other value", "it follows from the instance's id, which Azure chose", nil},
}

func foreignElement(c *comparison, recorded, _ any) bool { return c.foreign(recorded) }

// learnedName reports whether an id that ends with the recorded name was learned as an id that
// ends with azsim's.
func learnedName(c *comparison, recorded, got any) bool {
	want, have := "/"+strings.ToLower(fmt.Sprint(recorded)), "/"+strings.ToLower(fmt.Sprint(got))
	for from, to := range c.mapping.ids {
		if strings.HasSuffix(from, want) && strings.HasSuffix(strings.ToLower(to), have) {
			return true
		}
	}
	return false
}

func onePage(c *comparison, _, _ any) bool { return c.paged }
