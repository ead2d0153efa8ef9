package kube_test

const childEnv = "ORTET_TEST_CHILD"

func child() int { return 0 }
