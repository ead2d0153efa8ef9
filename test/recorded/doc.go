// Package recorded replays what the real Azure answered against azsim, and counts by
// resource type how often azsim answers the same.
//
// The recordings are those of the Azure CLI's and azure-libraries-for-net's own tests
// (Copyright (c) Microsoft Corporation, MIT licence). They are not part of the
// repository: ORTET_RECORDINGS names the folder of an archive azure.tar.xz, or of sessions
// as *.json. Without it the test is NOT RUN.
//
// A session (session_test.go) is a list of requests with their answers. Each has an azsim of
// its own (azure_test.go), in virtual time. Requests are sent as recorded, and at the
// recorded pace (replay_test.go). What Azure chose and azsim chooses otherwise, and later
// requests name, is mapped (mapping_test.go). Recorded polls are not sent: at the place of an
// operation's last recorded poll azsim's operation is followed to its end
// (operation_test.go). Answers are compared member by member (compare_test.go);
// rules_test.go holds which types count and what is no difference, each with its reason.
// What fails since something of an unwanted type was refused is a consequence
// (consequence_test.go).
//
// The table (table_test.go) is testdata/table.txt, and its shares by type are in
// docs/reference/azsim.md (shares_test.go). It holds numbers, types, and names of
// members, no recorded values. To accept a change of it:
//
//	ORTET_RECORDINGS=FOLDER go test ./test/recorded -args -update
//
// All differences of one session, with values, without a failure (a replay sends no If-Match, so
// another status may be the replay's):
//
//	ORTET_RECORDINGS=FOLDER go test ./test/recorded -run TestRecordings -v -args -session=NAME
//
// An example of each kind of difference, the most frequent first: -args -list.
//
// The same answers are served to Ortet's own adapter, internal/azure/arm (adapter_test.go):
// each recorded body through each public method that reads its type (adapter_doors_test.go),
// each field of what it returns compared with the recorded member (adapter_fields_test.go),
// and each recorded operation followed to its end (adapter_operation_test.go).
// testdata/adapter.txt lists the members that Ortet reads and no recording has, with where
// they are known from (adapter_known_test.go); it is accepted by -args -update, too.
package recorded
