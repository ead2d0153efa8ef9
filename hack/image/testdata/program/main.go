// Command program does nothing: the tests pack it.
package main

func main() {}
