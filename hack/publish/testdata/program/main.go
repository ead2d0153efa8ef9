// Command program is another build than that of hack/image's tests.
package main

func main() { println("another") }
