package redact

import (
	"bytes"
	"path"
	"strings"
)

// fileKind says how names and values are written in a file.
type fileKind uint8

const (
	text   fileKind = iota // configuration, scripts, logs, histories
	code                   // a program's source: names are of variables
	prose                  // documentation and templates: values are examples
	opaque                 // tokens and keys only
)

const (
	codeEnds  = " .py .pyi .pyx .js .mjs .cjs .ts .tsx .jsx .go .c .h .cc .cpp .cxx .hpp .java .kt .scala .rb .pl .pm .php .lua .rs .cs .swift .vim .el .tcl .m4 .css .scss .less .awk .proto .thrift .s .asm .xsd .xsl .xslt .dtd .wsdl .svg .ipynb .groovy .hs .ml .ex .erl .rst_t .glade .ui .qml .vala .pp .exp "
	proseEnds = " .md .rst .adoc .asciidoc .po .pot .mo .htm .html .xhtml .tex .texi .info .pod .man .example .sample .dist .template .tmpl .tpl .j2 .erb .in .map .lock .sum .ttf .woff .patch .diff .templates .list .md5sums .sha256sums .aff .dic .symbols .cil .te .lang .hlp .txt.gz .pyc .egg-info .ics .desktop "
	proseDirs = "/doc/|/docs/|/man/|/examples/|/example/|/samples/|/licenses/|/locale/|/i18n/|/testdata/|/test/|/tests/|/node_modules/|/site-packages/|/dist-packages/|/go/pkg/mod/|/gems/|/__pycache__/|/vendor/"
	proseName = " readme changelog license licence copying news authors install contributing notice package-lock.json npm-shrinkwrap.json yarn.lock pnpm-lock.yaml go.sum poetry.lock pipfile.lock composer.lock gemfile.lock cargo.lock bash_completion pkg-info metadata "
	// An ending of a document means nothing of a setting: apt's sources end in .list.
	scriptEnds  = " .sh .bash .ps1 .py .pl .rb .yaml .yml .json .xml .conf .cfg .env .ini .toml "
	settingEnds = " .list .map .in .info .pod .man .lang .hlp "
)

func kindOf(p Piece) fileKind {
	head := p.Data[:min(len(p.Data), 4096)]
	// A log may have some zeros where a machine stopped.
	if bytes.IndexByte(head, 0) >= 0 || bytes.Count(p.Data, []byte{0}) > 64 {
		return opaque
	}
	if p.Path == "" {
		return text
	}
	at := strings.ToLower("/" + p.Path)
	name := path.Base(at)
	end := path.Ext(name)
	stem := strings.TrimSuffix(name, end)
	section := strings.HasSuffix(stem, "_test") || len(end) == 2 && end[1] >= '1' && end[1] <= '8' && strings.Contains(at, "/man")
	if isLedger(at) {
		return opaque
	}
	document := end != "" && strings.Contains(proseEnds, " "+end+" ") && !(strings.HasPrefix(at, "/etc/") && strings.Contains(settingEnds, " "+end+" "))
	// INSTALL is a document, and install.sh a script.
	named := strings.Contains(proseName, " "+name+" ") || strings.Contains(proseName, " "+stem+" ") && !strings.Contains(scriptEnds, " "+end+" ")
	if document || named && !bytes.HasPrefix(head, []byte("#!")) || section {
		return prose
	}
	for rest := proseDirs; rest != ""; {
		var dir string
		if dir, rest, _ = strings.Cut(rest, "|"); strings.Contains(at, dir) {
			return prose
		}
	}
	if end != "" && strings.Contains(codeEnds, " "+end+" ") || bytes.HasPrefix(head, []byte("#!")) && isInterpreter(head) {
		return code
	}
	return text
}

// isLedger says whether a file is what package managers write for themselves: apt's and
// dnf's lists of packages, and logs of what was installed. They have the names of
// packages, and no settings.
func isLedger(at string) bool {
	for _, begin := range [...]string{
		"/var/lib/apt/lists/", "/var/lib/apt/extended_states", "/var/lib/dpkg/", "/var/cache/apt/", "/var/cache/dnf/", "/var/lib/dnf/",
		"/var/log/bootstrap.log", "/var/log/alternatives.log", "/var/log/dpkg.log", "/var/log/apt/history.log", "/var/log/dnf.", "/var/log/yum.log",
	} {
		if strings.HasPrefix(at, begin) {
			return true
		}
	}
	return false
}

// isInterpreter says whether a script is of a language other than a shell's.
func isInterpreter(head []byte) bool {
	line, _, _ := bytes.Cut(head, []byte("\n"))
	for _, name := range [...]string{"python", "perl", "ruby", "node", "php", "lua", "expect"} {
		if bytes.Contains(line, []byte(name)) {
			return true
		}
	}
	return false
}

// places are files whose secrets have a rule of their own: a path's end where it has
// no slash at its end, else a folder in it.
func places() []struct{ rule, paths string } {
	return []struct{ rule, paths string }{
		{ruleRegistry, ".docker/config.json .dockercfg .dockerconfigjson containers/auth.json var/lib/kubelet/config.json etc/containerd/ /certs.d/ registries.yaml registries.conf .docker/ buildkit/ etc/crictl.yaml credential-provider.yaml credential-provider-config.yaml etc/docker/ etc/crio/ etc/containers/"},
		{ruleAzureCache, ".azure/ .azd/ kubelogin/ .IdentityService/ accessTokens.json msal_token_cache.json msal_token_cache.bin service_principal_entries.json azureProfile.json kube/cache/"},
		{ruleNetrc, ".netrc _netrc etc/apt/auth.conf etc/apt/auth.conf.d/"},
		{rulePgpass, ".pgpass pgpass.conf pgpass"},
		{ruleMySQL, ".my.cnf .mylogin.cnf etc/mysql/"},
		{ruleGit, ".git-credentials git/credentials"},
		{ruleNPM, ".npmrc .yarnrc .yarnrc.yml etc/npmrc"},
		{rulePyPI, ".pypirc pip.conf"},
		{ruleAWS, ".aws/ .s3cfg .boto"},
		{ruleGoogle, "config/gcloud/ application_default_credentials.json"},
		{ruleGitHub, "config/gh/hosts.yml"},
		{ruleGitLab, "glab-cli/config.yml etc/gitlab-runner/config.toml"},
		{ruleVault, ".vault-token"},
		{ruleTerraform, ".terraformrc .tfrc credentials.tfrc.json"},
		{ruleDatadog, "etc/datadog-agent/"},
		{ruleWiFi, "etc/wpa_supplicant/ wpa_supplicant.conf system-connections/ etc/netplan/ etc/iwd/ var/lib/iwd/ hostapd.conf"},
		{ruleSNMP, "etc/snmp/ var/lib/snmp/ snmpd.conf snmp.conf"},
		{ruleWireGuard, "etc/wireguard/"},
		{ruleK3s, "etc/rancher/k3s/ etc/rancher/rke2/ var/lib/rancher/k3s/server/token var/lib/rancher/rke2/server/token var/lib/rancher/k3s/server/node-token var/lib/rancher/k3s/agent/ etc/systemd/system/k3s.service.env etc/systemd/system/k3s-agent.service.env"},
		{ruleCloudInit, "var/lib/cloud/ etc/cloud/ user-data user-data.txt cloud.cfg"},
	}
}

func placeOf(p Piece) string {
	if p.Path == "" {
		return ""
	}
	at := "/" + p.Path
	for _, pl := range places() {
		for rest := pl.paths; rest != ""; {
			var one string
			one, rest, _ = strings.Cut(rest, " ")
			if strings.HasSuffix(one, "/") && strings.Contains(at, one) || strings.HasSuffix(at, "/"+strings.TrimPrefix(one, "/")) {
				return pl.rule
			}
		}
	}
	if p.Whole && bytes.HasPrefix(p.Data, []byte("#cloud-config")) {
		return ruleCloudInit
	}
	return ""
}
