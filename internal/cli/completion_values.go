package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/ortet/ortet/internal/azure/arm"
	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/boots/survey"
	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/image/donors"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/image/watch"
	"github.com/ortet/ortet/internal/nodeconfig/push"
	"github.com/ortet/ortet/internal/wire"
)

// An argumentCompletion is how a command's arguments are completed: by values, or by files.
type argumentCompletion struct {
	limit int // of arguments; 0 is none
	files cobra.ShellCompDirective
	from  []completionSource
}

// completedArguments are those of all commands that take arguments, by path.
func completedArguments() map[string]argumentCompletion {
	of := func(limit int, from ...completionSource) argumentCompletion {
		return argumentCompletion{limit, cobra.ShellCompDirectiveNoFileComp, from}
	}
	files, folder := argumentCompletion{files: cobra.ShellCompDirectiveDefault}, argumentCompletion{limit: 1, files: cobra.ShellCompDirectiveFilterDirs}
	file := files
	file.limit = 1
	return map[string]argumentCompletion{
		"capture": of(1, nodesToCapture), "rollback": of(1, nodeNames, poolsOfNodes),
		"rollout": of(1, nodeNames, poolsOfNodes), "watch": of(1, nodeNames, poolsOfNodes),
		"donors": of(0, poolsOfNodes), "status": of(0, poolsOfNodes), "versions": of(0, poolsOfNodes),
		"versions diff": of(1, poolsOfNodes), "versions sbom": of(1, poolsOfNodes),
		"nodes": of(1, nodeNames), "admission revoke": of(1, nodeNames),
		"boot show": of(1, nodeNames), "boot stats": of(1, poolsOfNodes, bootVersions), "boot diff": of(2, nodeNames, poolsOfNodes, bootVersions), "boot analyze": files, "explain": files,
		"config plan": of(1, poolsOfNodes), "config push": of(1, poolsOfNodes), "config status": of(1, poolsOfNodes), "config rollback": of(1, poolsOfNodes), "config validate": file,
		"operator export": file, "cluster artifacts": folder, "cluster backup": of(1), "cluster restore": of(1), "cluster ssh": of(0),
		"cluster chaos": of(1, poolsOfFile), "cluster reimage": of(1, poolsOfFile), "cluster start": of(1, poolsOfFile), "cluster stop": of(1, poolsOfFile),
		"cluster scale": of(1, poolsOfFile), "cluster resize": of(1, poolsOfFile), "cluster replace": of(1, fixedValues("server"), nodeNames),
	}
}

// completedFlags are the flags with values, by name or by the command and name. Those of
// -o stand in its usage; flags that take a FILE need no line.
func completedFlags() map[string][]completionSource {
	var rules []string
	for _, r := range donors.Rules() {
		if r.Ours { // the others cannot be switched off
			rules = append(rules, r.Name)
		}
	}
	return map[string][]completionSource{
		"--context": {contextsOfKubeconfig}, "--namespace": {namespaces}, "--log-level": {fixedValues("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")},
		"--pool": {poolsOfNodes}, "controller --pool": {poolIDs}, "admission --pool": {poolIDs}, "admission --keep-capacity": {poolIDs}, "cluster init --pool": {fixedValues()},
		"--resource-group": {groupIDs}, "--workbench": {nodeNames}, "--ignore-node": {nodeNames}, "--skip-node": {nodeNames},
		"config push --canary": {nodeNames}, "config rollback --canary": {nodeNames},
		"--bootstrap": {fixedValues(plan.BootstrapKeep, plan.BootstrapBaked)}, "--extensions": {fixedValues("default", "all", "none")},
		"--bad-nodes": {fixedValues(watch.Cordon, watch.Delete, watch.Leave)}, "--skip-rule": {fixedValues(rules...)},
		"--tune":        {fixedValues(append([]string{wire.TuneRecommended}, wire.Tunings()...)...)},
		"rollback --to": {fixedValues("previous", "original"), imageVersions}, "config rollback --to": {generations}, "boot show --boot": {bootIDs},
		"--attestation-domain": {fixedValues("metadata.azure.com", "metadata.azure.us", "metadata.azure.cn")},
	}
}

func fixedValues(values ...string) completionSource {
	return func(context.Context, *completionLine) []string { return slices.Clone(values) }
}

// access starts no program that asks a person.
func (l *completionLine) access() (*rest.Config, error) {
	config, err := l.kubernetes()
	if err != nil {
		return nil, err
	}
	config.WarningHandler = rest.NoWarnings{}
	if config.ExecProvider != nil {
		config.ExecProvider.StdinUnavailable = true
	}
	return config, nil
}

// client asks once.
func (l *completionLine) client() (kubernetes.Interface, error) {
	config, err := l.access()
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// cluster asks once.
func (l *completionLine) cluster() (*kube.Cluster, error) {
	config, err := l.access()
	if err != nil {
		return nil, err
	}
	return kube.New(kube.Config{REST: config, Namespace: l.namespace, ReadRetries: -1})
}

func (l *completionLine) nodes(ctx context.Context) (nodes []fleet.Node) {
	c, err := l.cluster()
	if err != nil {
		return nil
	}
	for n, err := range c.Nodes(ctx) {
		if err != nil {
			return nil
		}
		nodes = append(nodes, n)
	}
	return nodes
}

func nodeNames(ctx context.Context, l *completionLine) (out []string) {
	for _, n := range l.nodes(ctx) {
		out = append(out, n.Name)
	}
	return out
}

// nodesToCapture are none beside --pool and --all, which choose the node.
func nodesToCapture(ctx context.Context, l *completionLine) []string {
	if l.c.Flags().Changed("pool") || l.c.Flags().Changed("all") {
		return nil
	}
	return nodeNames(ctx, l)
}

// poolOfNode is the scale set of a Node's provider id; "" where only Azure knows it, as of
// a Flexible scale set.
func poolOfNode(n fleet.Node) fleet.ResourceID {
	return fleet.ResourceID(strings.TrimPrefix(n.ProviderID, "azure://")).UniformPool()
}

// nodesPools are the pools of the Nodes, without a request to Azure.
func (l *completionLine) nodesPools(ctx context.Context) (out []fleet.ResourceID) {
	for _, n := range l.nodes(ctx) {
		if id := poolOfNode(n); id != "" && !slices.ContainsFunc(out, id.Equal) {
			out = append(out, id)
		}
	}
	return out
}

func poolsOfNodes(ctx context.Context, l *completionLine) (out []string) {
	for _, id := range l.nodesPools(ctx) {
		out = append(out, id.Name())
	}
	return out
}

func poolIDs(ctx context.Context, l *completionLine) (out []string) {
	for _, id := range l.nodesPools(ctx) {
		out = append(out, string(id))
	}
	return out
}

func groupIDs(ctx context.Context, l *completionLine) (out []string) {
	for _, id := range l.nodesPools(ctx) {
		out = append(out, string(id.Group()))
	}
	return out
}

// argumentPool is the pool that the first argument names, or that has the node which it
// names; "" for neither.
func (l *completionLine) argumentPool(ctx context.Context) fleet.ResourceID {
	if len(l.args) == 0 {
		return ""
	}
	if strings.HasPrefix(l.args[0], "/") {
		return fleet.ResourceID(l.args[0])
	}
	for _, n := range l.nodes(ctx) {
		if id := poolOfNode(n); n.Name == l.args[0] || id != "" && strings.EqualFold(id.Name(), l.args[0]) {
			return id
		}
	}
	return ""
}

// imageVersions are those of the pool on the line, newest first. They alone need Azure.
func imageVersions(ctx context.Context, l *completionLine) (out []string) {
	pool := l.argumentPool(ctx)
	if pool == "" {
		return nil
	}
	cloud, _, err := logIn(ctx, l.options, arm.New)
	if err != nil {
		return nil
	}
	versions, _, err := capture.Config{Cloud: cloud}.History(ctx, pool, fleet.ImageReference{})
	if err != nil {
		return nil
	}
	slices.SortFunc(versions, func(a, b fleet.ImageVersion) int { return b.Published.Compare(a.Published) })
	for i := range versions {
		out = append(out, versions[i].Name)
	}
	return out
}

// generations are those of the pool's kept configurations. What they hold is not verified:
// they are numbers.
func generations(ctx context.Context, l *completionLine) (out []string) {
	client, err := l.client()
	pool := l.argumentPool(ctx)
	if err != nil || pool == "" {
		return nil
	}
	history, err := client.CoreV1().ConfigMaps(l.namespace).Get(ctx, push.HistoryName(pool), metav1.GetOptions{})
	if err != nil {
		return nil
	}
	var numbers []int64
	for _, text := range history.Data {
		var entry struct {
			Generation int64 `json:"generation"`
		}
		if json.Unmarshal([]byte(text), &entry) == nil && entry.Generation > 0 {
			numbers = append(numbers, entry.Generation)
		}
	}
	slices.Sort(numbers)
	for _, n := range slices.Backward(numbers) {
		out = append(out, fmt.Sprint(n))
	}
	return out
}

func (l *completionLine) boots(ctx context.Context, label, name string) []survey.KeptBoot {
	c, err := l.cluster()
	if err != nil {
		return nil
	}
	boots, err := (&survey.KeptBoots{Records: c, Nodes: c, Namespace: l.namespace}).Of(ctx, label, name)
	if err != nil {
		return nil
	}
	return boots
}

// bootVersions are POOL@VERSION of the stored boots, once the pool is typed.
func bootVersions(ctx context.Context, l *completionLine) []string {
	pool, _, is := strings.Cut(l.toComplete, "@")
	if !is {
		return nil
	}
	out := []string{pool + "@" + survey.LatestVersion, pool + "@" + survey.PreviousVersion}
	for _, b := range slices.Backward(l.boots(ctx, assess.BootPoolLabel, pool)) {
		out = append(out, pool+"@"+b.Record.ImageVersion())
	}
	return out
}

// bootIDs are the stored boots of the node on the line, the last one first.
func bootIDs(ctx context.Context, l *completionLine) (out []string) {
	if len(l.args) == 0 {
		return nil
	}
	for _, b := range slices.Backward(l.boots(ctx, assess.BootNodeLabel, l.args[0])) {
		out = append(out, b.Report.BootID)
	}
	return out
}

func namespaces(ctx context.Context, l *completionLine) (out []string) {
	client, err := l.client()
	if err != nil {
		return nil
	}
	list, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil
	}
	for i := range list.Items {
		out = append(out, list.Items[i].Name)
	}
	return out
}

func contextsOfKubeconfig(_ context.Context, l *completionLine) (out []string) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = l.kubeconfig
	config, err := rules.Load()
	if err != nil {
		return nil
	}
	for name := range config.Contexts {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// poolsOfFile are the pools of cluster.yaml, or of the file on the line.
func poolsOfFile(_ context.Context, l *completionLine) (out []string) {
	cluster, err := (&clusterOptions{options: l.options, file: l.c.Flag("file").Value.String()}).read()
	if err != nil {
		return nil
	}
	for _, p := range cluster.Spec.Pools {
		out = append(out, p.Name)
	}
	return out
}
