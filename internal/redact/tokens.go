package redact

// A tokenForm is how a kind of token is known by itself. The same table serves what
// is published and the scan.
type tokenForm struct {
	begin string // as the token begins
	least int    // bytes behind that
	rule  string
	of    byte // what it is made of: w letters, digits, - and _; d dots too; h exactly so many of hexadecimal; u of capitals and digits
}

// tokenForms are the tokens that are known by how they begin. Letters count.
func tokenForms() []tokenForm {
	return []tokenForm{
		{"ghp_", 30, ruleGitHub, 'w'}, {"gho_", 30, ruleGitHub, 'w'}, {"ghu_", 30, ruleGitHub, 'w'}, {"ghs_", 30, ruleGitHub, 'd'}, {"ghr_", 30, ruleGitHub, 'w'}, {"github_pat_", 36, ruleGitHub, 'w'},
		{"glpat-", 20, ruleGitLab, 'd'}, {"gldt-", 20, ruleGitLab, 'd'}, {"glrt-", 20, ruleGitLab, 'd'}, {"glrtr-", 20, ruleGitLab, 'd'}, {"glcbt-", 20, ruleGitLab, 'd'}, {"glptt-", 20, ruleGitLab, 'd'},
		{"glft-", 20, ruleGitLab, 'd'}, {"glimt-", 20, ruleGitLab, 'd'}, {"glsoat-", 20, ruleGitLab, 'd'}, {"gloas-", 20, ruleGitLab, 'd'}, {"glagent-", 20, ruleGitLab, 'd'}, {"glffct-", 20, ruleGitLab, 'd'},
		{"GR1348941", 20, ruleGitLab, 'w'}, {"glwt-", 20, ruleGitLab, 'd'},
		{"xoxb-", 16, ruleSlack, 'w'}, {"xoxp-", 16, ruleSlack, 'w'}, {"xoxa-", 16, ruleSlack, 'w'}, {"xoxr-", 16, ruleSlack, 'w'}, {"xoxs-", 16, ruleSlack, 'w'}, {"xoxo-", 16, ruleSlack, 'w'},
		{"xoxe-", 16, ruleSlack, 'w'}, {"xoxe.", 16, ruleSlack, 'd'}, {"xoxc-", 16, ruleSlack, 'w'}, {"xoxd-", 16, ruleSlack, 'w'}, {"xapp-", 16, ruleSlack, 'w'}, {"xwfp-", 16, ruleSlack, 'w'},
		{"npm_", 36, ruleNPM, 'w'}, {"pypi-", 50, rulePyPI, 'w'},
		{"AKIA", 16, ruleAWS, 'u'}, {"ASIA", 16, ruleAWS, 'u'}, {"ABSK", 40, ruleAWS, 'w'},
		{"AIza", 35, ruleGoogle, 'w'}, {"ya29.", 20, ruleGoogle, 'd'}, {"GOCSPX-", 20, ruleGoogle, 'w'}, {"1//0", 30, ruleGoogle, 'w'},
		{"sk_live_", 16, ruleStripe, 'w'}, {"rk_live_", 16, ruleStripe, 'w'}, {"sk_test_", 16, ruleStripe, 'w'}, {"rk_test_", 16, ruleStripe, 'w'}, {"whsec_", 24, ruleStripe, 'w'},
		{"SG.", 60, ruleSendGrid, 'd'}, {"SK", 32, ruleTwilio, 'h'},
		{"hvs.", 20, ruleVault, 'w'}, {"hvb.", 20, ruleVault, 'w'}, {"hvr.", 20, ruleVault, 'w'},
		{"tskey-", 16, ruleTailscale, 'w'}, {"AGE-SECRET-KEY-1", 50, ruleAge, 'w'}, {"AGE-SECRET-KEY-PQ-1", 50, ruleAge, 'w'}, {"AGE-PLUGIN-", 30, ruleAge, 'w'},
		{"dckr_pat_", 20, ruleRegistry, 'w'}, {"dckr_oat_", 20, ruleRegistry, 'w'}, {"AKCp", 60, ruleRegistry, 'w'}, {"cmVmdGtu", 40, ruleRegistry, 'w'},
		{"SWMTKN-1-", 40, ruleJoin, 'w'}, {"SWMKEY-1-", 30, ruleJoin, 'w'},
		{"NRAK-", 20, ruleService, 'w'}, {"NRJS-", 16, ruleService, 'w'}, {"NRII-", 24, ruleService, 'w'}, {"dt0c01.", 24, ruleService, 'd'}, {"dt0s", 40, ruleService, 'd'},
		{"dop_v1_", 40, ruleService, 'w'}, {"doo_v1_", 40, ruleService, 'w'}, {"dor_v1_", 40, ruleService, 'w'},
		{"glsa_", 32, ruleService, 'w'}, {"glc_", 32, ruleService, 'w'}, {"sntrys_", 32, ruleService, 'w'}, {"sntryu_", 40, ruleService, 'w'},
		{"lin_api_", 32, ruleService, 'w'}, {"shpat_", 32, ruleService, 'w'}, {"shpss_", 32, ruleService, 'w'}, {"shpca_", 32, ruleService, 'w'}, {"sq0atp-", 20, ruleService, 'w'}, {"sq0csp-", 40, ruleService, 'w'},
		{"PMAK-", 40, ruleService, 'w'}, {"xkeysib-", 40, ruleService, 'w'}, {"dapi", 32, ruleService, 'h'}, {"pul-", 40, ruleService, 'w'}, {"hf_", 34, ruleService, 'w'},
		{"sk-ant-", 40, ruleService, 'w'}, {"sk-proj-", 40, ruleService, 'w'}, {"sk-svcacct-", 40, ruleService, 'w'}, {"gsk_", 48, ruleService, 'w'}, {"ATATT3", 60, ruleService, 'w'}, {"ATCTT3", 60, ruleService, 'w'}, {"ATBB", 32, ruleService, 'w'},
		{"rubygems_", 40, ruleService, 'w'}, {"dp.pt.", 40, ruleService, 'w'}, {"dp.st.", 40, ruleService, 'd'}, {"ops_eyJ", 60, ruleService, 'w'}, {"figd_", 30, ruleService, 'w'}, {"CLOJARS_", 50, ruleService, 'w'},
		{"CFPAT-", 40, ruleService, 'w'}, {"LTAI", 16, ruleService, 'w'}, {"EAAG", 60, ruleService, 'w'}, {"fm2_", 60, ruleService, 'w'}, {"FlyV1 fm", 60, ruleService, 'w'},
		{"HRKU-", 36, ruleService, 'w'}, {"pscale_", 32, ruleService, 'd'}, {"sbp_", 40, ruleService, 'w'}, {"CCIPAT_", 40, ruleService, 'w'}, {"bkua_", 40, ruleService, 'w'}, {"eyJhIjoi", 100, ruleService, 'w'}, {"nvapi-", 40, ruleService, 'w'}, {"kbp_", 30, ruleService, 'w'}, {"duffel_live_", 40, ruleService, 'w'}, {"sqp_", 40, ruleService, 'w'}, {"squ_", 40, ruleService, 'w'}, {"tfp_", 40, ruleService, 'w'},
		{"oy2", 43, ruleService, 'w'}, {"p8e-", 32, ruleService, 'w'}, {"sgp_", 40, ruleService, 'w'}, {"pplx-", 48, ruleService, 'w'}, {"pnu_", 36, ruleService, 'w'}, {"rdme_", 70, ruleService, 'w'}, {"ntn_", 40, ruleService, 'w'},
		{"EZAK", 54, ruleService, 'w'}, {"fo1_", 43, ruleService, 'w'}, {"fm1r_", 60, ruleService, 'w'}, {"fm1a_", 60, ruleService, 'w'}, {"shppa_", 32, ruleService, 'w'}, {"sk-admin-", 40, ruleService, 'w'}, {"sk-or-v1-", 40, ruleService, 'w'}, {"xai-", 60, ruleService, 'w'},
		{"shippo_live_", 40, ruleService, 'w'}, {"api_org_", 34, ruleService, 'w'}, {"dvc_server_token_", 20, ruleService, 'w'}, {"syt_", 30, ruleService, 'w'}, {"tk-us-", 48, ruleService, 'w'}, {"ABIA", 16, ruleAWS, 'u'}, {"ACCA", 16, ruleAWS, 'u'},
	}
}

// end is where the token ends that begins at from in s; -1 where it is none.
func (f *tokenForm) end(s []byte, from int) int {
	if len(s)-from < len(f.begin)+f.least || string(s[from:from+len(f.begin)]) != f.begin || from > 0 && (isAlnum(s[from-1]) || s[from-1] == '_') && !escaped(s, from) {
		return -1
	}
	to := from + len(f.begin)
	for to < len(s) && to-from < maxRun && f.has(s[to]) {
		to++
	}
	for to > from && s[to-1] == '.' { // of a sentence
		to--
	}
	n := to - from - len(f.begin)
	if n < f.least || (f.of == 'h' || f.of == 'u') && (n != f.least || to < len(s) && isAlnum(s[to])) {
		return -1
	}
	return to
}

func (f *tokenForm) has(c byte) bool {
	switch f.of {
	case 'h':
		return c >= '0' && c <= '9' || c >= 'a' && c <= 'f'
	case 'u':
		return c >= '0' && c <= '9' || c >= 'A' && c <= 'Z'
	}
	return isAlnum(c) || c == '_' || c == '-' || f.of == 'd' && c == '.'
}

// escaped says whether what is before i is an escape of a JSON string, such as \n.
func escaped(s []byte, i int) bool { return i > 1 && s[i-2] == '\\' }

func isAlnum(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}
