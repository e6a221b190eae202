package main

type verifyCmd struct{}

func (c *verifyCmd) Run(a *app) error { return nil }
