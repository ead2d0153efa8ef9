package elastic

import (
	"reflect"
	"regexp"
	"strings"
	"unicode/utf8"
)

// A field says what one field of cluster.yaml may hold. Parse and Schema both read
// the table below, so they cannot disagree.
type field struct {
	doc     string
	want    string // what pattern means, in words
	pattern string
	max     int // characters of a string, or the largest number
	min     int
	enum    []string
}

const (
	groupPattern = `^[A-Za-z0-9_().-]*[A-Za-z0-9_()-]$`
	groupWant    = "a resource group's name: letters, digits, and _ ( ) - . but no . at the end"
	sizePattern  = `^Standard_[A-Z]+[0-9]+(-[0-9]+)?[a-z]*(_[A-Za-z0-9]+)*$`
	sizeWant     = "a VM size as Azure spells it, such as Standard_D2s_v5"
	cidrPattern  = `^[0-9.]+/[0-9]+$`
	cidrWant     = "an IPv4 range, such as 10.16.0.0/16"
	sourceDoc    = "own (the address that --own-address gives), cloudflare, any, or an address or range, IPv4 or IPv6"
)

var diskTypes = []string{"Standard_LRS", "StandardSSD_LRS", "Premium_LRS"}

// fields has the key TYPE.FIELD; items of a list or map have [] after it. Limits are
// Azure's (learn.microsoft.com, "Naming rules and restrictions for Azure resources").
var fields = map[string]field{
	"Cluster.apiVersion": {doc: "Version of this form.", enum: []string{APIVersion}},
	"Cluster.kind":       {doc: "Kind of this file.", enum: []string{Kind}},
	"Cluster.metadata":   {doc: "What the cluster is called."},
	"Cluster.spec":       {doc: "What the cluster consists of."},
	"Metadata.name": {doc: "Name of the cluster, from which names in Azure are made.", pattern: `^[a-z]([a-z0-9-]*[a-z0-9])?$`, min: 1, max: 20,
		want: "a letter a-z, then a-z, 0-9 and -, with no - at the end"},

	"Spec.location":  {doc: "Azure region.", pattern: `^[a-z][a-z0-9]*$`, min: 3, max: 40, want: "a region's short name, such as westeurope (az account list-locations)"},
	"Spec.groups":    {doc: "Resource groups."},
	"Spec.image":     {doc: "Image of the server and of all pools that have none of their own; default Ubuntu 24.04 LTS."},
	"Spec.artifacts": {doc: "Programs that machines fetch at boot, each checked by its digest. ortet cluster artifacts writes this block."},
	"Spec.network":   {doc: "Address ranges. The address space, pods and services must not overlap."},
	"Spec.server":    {doc: "The machine that runs k3s server."},
	"Spec.pools":     {doc: "Scale sets of agents.", min: 1, max: 20},
	"Spec.storage":   {doc: "What outlives compute: the storage account and its file shares."},
	"Spec.access":    {doc: "Who reaches the server from outside."},
	"Spec.options":   {doc: "Conveniences that are off unless set."},

	"Groups.storage": {doc: "Group of the storage account; default NAME-storage.", pattern: groupPattern, min: 1, max: 90, want: groupWant},
	"Groups.compute": {doc: "Group of machines and network; default NAME-compute.", pattern: groupPattern, min: 1, max: 90, want: groupWant},

	"Image.publisher": {doc: "Publisher of a Marketplace image.", pattern: `^[A-Za-z0-9._-]+$`, min: 1, max: 80, want: "a publisher as az vm image list prints it"},
	"Image.offer":     {doc: "Offer of a Marketplace image.", pattern: `^[A-Za-z0-9._-]+$`, min: 1, max: 80, want: "an offer as az vm image list prints it"},
	"Image.sku":       {doc: "SKU of a Marketplace image.", pattern: `^[A-Za-z0-9._-]+$`, min: 1, max: 80, want: "a SKU as az vm image list prints it"},
	"Image.version":   {doc: "Version of a Marketplace image; default latest.", pattern: `^(latest|[0-9]+(\.[0-9]+)+)$`, min: 1, max: 40, want: "latest, or numbers with dots"},
	"Image.id": {doc: "ARM id of a gallery's image definition or image version, instead of a Marketplace image.", min: 1, max: 500,
		pattern: `^/[sS]ubscriptions/[0-9a-fA-F-]{36}/[rR]esource[gG]roups/[^/]+/[pP]roviders/[mM]icrosoft\.[cC]ompute/[gG]alleries/[A-Za-z0-9_.]+/[iI]mages/[A-Za-z0-9_.-]+(/[vV]ersions/([0-9]+\.[0-9]+\.[0-9]+|latest))?$`,
		want:    "/subscriptions/ID/resourceGroups/GROUP/providers/Microsoft.Compute/galleries/GALLERY/images/IMAGE, with or without /versions/1.2.3"},

	"Artifacts.k3s":       {doc: "The k3s binary."},
	"Artifacts.images":    {doc: "k3s's air-gap images, a tar archive, as it is or with gzip or zstd."},
	"Artifacts.ortet":     {doc: "ortet, for the server."},
	"Artifacts.ortetNode": {doc: "ortet-node, for agents."},
	"Artifacts.version":   {doc: "Version of k3s; informational.", pattern: `^v[0-9]+\.[0-9]+\.[0-9]+[-+.a-z0-9]*$`, max: 60, min: 1, want: "a version such as v1.36.3+k3s1"},
	"Artifact.url":        {doc: "Where machines fetch it: https://, http:// or file:///srv/, which is the mounted share.", pattern: `^(https?://[^/]+/.+|file:///srv/.+)$`, min: 1, max: 2000, want: "https://, http:// or file:///srv/ (the share) with a path"},
	"Artifact.sha256":     {doc: "SHA-256 of the file.", pattern: `^[0-9a-f]{64}$`, min: 64, max: 64, want: "64 hex digits in lower case, as sha256sum prints them"},

	"Network.addressSpace": {doc: "Range of the VNet; default 10.16.0.0/16.", pattern: cidrPattern, want: cidrWant},
	"Network.servers":      {doc: "Subnet of the server, /28 or larger; default 10.16.0.0/24.", pattern: cidrPattern, want: cidrWant},
	"Network.agents":       {doc: "Subnet of the agents, /28 or larger; default 10.16.16.0/20.", pattern: cidrPattern, want: cidrWant},
	"Network.pods":         {doc: "Range of pods; each Node gets a /24 of it; default 10.42.0.0/16.", pattern: cidrPattern, want: cidrWant},
	"Network.services":     {doc: "Range of Services, /12 to /24; default 10.43.0.0/16.", pattern: cidrPattern, want: cidrWant},

	"Server.size":     {doc: "VM size; default Standard_D2s_v5.", pattern: sizePattern, want: sizeWant, min: 1, max: 80},
	"Server.diskGB":   {doc: "Size of the OS disk; default 32.", min: 30, max: 4095},
	"Server.diskType": {doc: "Type of the OS disk; default StandardSSD_LRS.", enum: diskTypes},
	"Server.image":    {doc: "Image; default spec.image."},

	"Pool.name": {doc: "Name of the pool and prefix of its machines' names; not server.", pattern: `^[a-z][a-z0-9]*$`, min: 1, max: 9,
		want: "a letter a-z, then a-z and 0-9"},
	"Pool.size":           {doc: "VM size; default Standard_D2s_v5.", pattern: sizePattern, want: sizeWant, min: 1, max: 80},
	"Pool.count":          {doc: "Number of agents. Applied when the pool is made, and again when it is changed here.", max: 1000},
	"Pool.min":            {doc: "Smallest number of agents, with max in place of count: Azure scales by CPU.", max: 1000},
	"Pool.max":            {doc: "Largest number of agents, with min in place of count.", max: 1000},
	"Pool.priority":       {doc: "Spot or Regular; default Spot.", enum: []string{Spot, Regular}},
	"Pool.evictionPolicy": {doc: "What Azure does with an evicted Spot machine; default Delete.", enum: []string{Delete, Deallocate}},
	"Pool.zones":          {doc: "Availability zones.", max: 3},
	"Pool.zones[]":        {enum: []string{"1", "2", "3"}},
	"Pool.scaleInPolicy":  {doc: "Which machines Azure removes first when the count is lowered; default Default.", enum: []string{"Default", "NewestVM", "OldestVM"}},
	"Pool.diskGB":         {doc: "Size of the OS disk; default 32.", min: 30, max: 4095},
	"Pool.diskType":       {doc: "Type of the OS disk; default StandardSSD_LRS.", enum: diskTypes},
	"Pool.image":          {doc: "Image; default spec.image."},
	"Pool.labels":         {doc: "Labels of the Nodes."},
	"Pool.labels[]":       {max: 63},
	"Pool.taints":         {doc: "Taints of the Nodes, KEY=VALUE:EFFECT.", max: 50},
	"Pool.taints[]":       {min: 1, max: 400},

	"Storage.account":  {doc: "Name of the storage account, unique in all of Azure. ortet cluster init makes one up.", pattern: `^[a-z0-9]+$`, min: 3, max: 24, want: "lower-case letters and digits"},
	"Storage.existing": {doc: "The account exists already, in groups.storage: it is neither made nor changed nor deleted."},
	"Storage.shares":   {doc: "File shares; default config, data and registry.", min: 1, max: 50},
	"Storage.shares[]": {pattern: `^[a-z0-9]+(-[a-z0-9]+)*$`, min: 3, max: 63, want: "lower-case letters and digits, with single - between them"},
	"Storage.mount":    {doc: "The share at /srv on all machines; default data.", pattern: `^[a-z0-9]+(-[a-z0-9]+)*$`, min: 3, max: 63, want: "the name of one of storage.shares"},

	"Access.user":      {doc: "User of SSH; default ortet.", pattern: `^[a-z_][a-z0-9_-]*$`, min: 1, max: 32, want: "a Linux user's name: a-z, 0-9, _ and -, first a letter"},
	"Access.sshPort":   {doc: "Port of SSH; default 22.", min: 1, max: 65535},
	"Access.sshKey":    {doc: "File of the public key, relative to cluster.yaml; default NAME.pub, which ortet cluster keys makes.", min: 1, max: 1000},
	"Access.ssh":       {doc: "Sources for SSH: " + sourceDoc + "; default own.", max: 500},
	"Access.ssh[]":     {min: 1, max: 50},
	"Access.api":       {doc: "Sources for the API server, port 6443; default those of ssh.", max: 500},
	"Access.api[]":     {min: 1, max: 50},
	"Access.ingress":   {doc: "Sources for ports 80 and 443; default none.", max: 500},
	"Access.ingress[]": {min: 1, max: 50},
	"Access.fail2ban":  {doc: "Install fail2ban on the server."},

	"Options.privateRegistry":    {doc: "Agents pull from the registry that deploy/registry runs on the server, port 5000."},
	"Options.swapGB":             {doc: "Swap file on the temporary disk; 0 is none.", max: 64},
	"Options.scratch":            {doc: "/mnt/scratch on the temporary disk of agents."},
	"Options.timeZone":           {doc: "Time zone of machines.", pattern: `^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,2}$`, min: 1, max: 60, want: "a name such as UTC or Europe/Lisbon"},
	"Options.rebootAfterUpdates": {doc: "Upgrade packages at the first boot, then reboot once."},
}

// check says what is wrong with a string by itself; "" is nothing.
func (f field) check(value string) string {
	n := utf8.RuneCountInString(value)
	switch {
	case value == "" && (f.min > 0 || f.enum != nil || f.pattern != ""):
		return "is empty; give a value, or delete the line"
	case f.enum != nil:
		for _, e := range f.enum {
			if e == value {
				return ""
			}
		}
		return quote(value) + " is not known; use " + strings.Join(f.enum, ", ")
	case f.max > 0 && (n > f.max || n < f.min):
		return quote(value) + " has " + count(n, "character") + "; use " + interval(f.min, f.max)
	case f.pattern != "" && !regexp.MustCompile(f.pattern).MatchString(value):
		return quote(value) + " is not valid; use " + f.want
	}
	return ""
}

// jsonField is the name of a field in cluster.yaml, and whether it must be there.
func jsonField(f reflect.StructField) (name string, required bool) {
	name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name, options == ""
}
