package cli

import "github.com/spf13/cobra"

// addExamples gives examples to the commands whose files have none; many of them share
// a constructor.
func addExamples(root *cobra.Command) {
	examples := commandExamples()
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		if c.Example == "" {
			c.Example = examples[commandPath(c)]
		}
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(root)
}

func commandExamples() map[string]string {
	return map[string]string{
		"status": `  ortet status
  ortet status k8s-pool1-12345678-vmss`,
		"nodes": `  ortet nodes
  ortet nodes --failed
  ortet nodes k8s-pool1-12345678-vmss000003`,
		"explain": `  ortet explain console.txt
  ortet explain journal.txt console.txt -o json`,
		"boot show": `  ortet boot show k8s-pool1-12345678-vmss000003
  ortet boot show k8s-pool1-12345678-vmss000003 -o html --out boot.html`,
		"boot stats": `  ortet boot stats k8s-pool1-12345678-vmss
  ortet boot stats k8s-pool1-12345678-vmss@latest`,
		"boot diff": `  ortet boot diff k8s-pool1-12345678-vmss@previous \
    k8s-pool1-12345678-vmss@latest`,
		"boot analyze": `  ortet boot analyze journal.json
  ortet boot analyze journal.json cloud-init.log -o html --out boot.html`,
		"controller":       `  ortet controller --pool "$POOL_ID"`,
		"admission":        `  ortet admission --tls-san join.example.com --pool "$POOL_ID"`,
		"admission revoke": `  ortet admission revoke k8s-pool1-12345678-vmss000003`,
		"config keygen": `  ortet config keygen
  ortet config keygen --public ortet-config.key`,
		"config validate": `  ortet config validate nodeconfig.yaml`,
		"config plan":     `  ortet config plan pool1 -f nodeconfig.yaml`,
		"config status":   `  ortet config status pool1`,
		"config rollback": `  ortet config rollback pool1
  ortet config rollback pool1 --to 3`,
		"cluster agents":        `  ortet cluster agents`,
		"cluster artifacts":     `  ortet cluster artifacts ./artifacts --url https://mirror.example/k3s`,
		"cluster backup":        "  ortet cluster backup before-upgrade\n  ortet cluster backup --list",
		"cluster chaos":         `  ortet cluster chaos agents`,
		"cluster down":          "  ortet cluster down\n  ortet cluster down --storage",
		"cluster endpoints":     `  ortet cluster endpoints`,
		"cluster init":          `  ortet cluster init --name dev --location westeurope --pool agents=3`,
		"cluster keys":          `  ortet cluster keys`,
		"cluster kubeconfig":    `  ortet cluster kubeconfig`,
		"cluster logs":          `  ortet cluster logs --follow`,
		"cluster plan":          `  ortet cluster plan`,
		"cluster proxy":         `  ortet cluster proxy -L 8080:127.0.0.1:80`,
		"cluster reimage":       `  ortet cluster reimage agents --outdated`,
		"cluster replace":       "  ortet cluster replace dev-agents000003\n  ortet cluster replace server",
		"cluster resize":        `  ortet cluster resize agents Standard_D4s_v5`,
		"cluster restore":       `  ortet cluster restore before-upgrade`,
		"cluster scale":         `  ortet cluster scale agents 5`,
		"cluster ssh":           "  ortet cluster ssh\n  ortet cluster ssh -- sudo k3s kubectl get nodes",
		"cluster start":         "  ortet cluster start\n  ortet cluster start agents",
		"cluster status":        "  ortet cluster status\n  ortet cluster status --watch",
		"cluster stop":          "  ortet cluster stop\n  ortet cluster stop agents",
		"cluster up":            "  ortet cluster up --dry-run\n  ortet cluster up",
		"cluster validate":      `  ortet cluster validate -f cluster.yaml`,
		"version":               `  ortet version -o json`,
		"completion bash":       `  source <(ortet completion bash)`,
		"completion fish":       `  ortet completion fish | source`,
		"completion powershell": `  ortet completion powershell | Out-String | Invoke-Expression`,
		"completion zsh":        `  source <(ortet completion zsh)`,
	}
}
